"""Pictures and ``report.html`` of one run or several: a single page that needs no network, scripts or other files."""

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from lightning_fl import files, plot
from lightning_fl.run.identity import Config
from lightning_fl.run.saved import SavedRun, changed, flat, kappa_text, labels, trust_shares
from lightning_fl.text import many

CAPTIONS = {
    "accuracy": "Accuracy over rounds",
    "attack": "Attack success rate over rounds",
    "recall": "Recall of each class",
    "drop": "Recall lost against plain averaging without attack",
    "confusion": "Confusion matrix of the last evaluation",
    "robustness": "Squared distance from the honest mean, over the honest variance (kappa)",
    "weights": "Weight that the rule gave to clients",
    "clients": "Weight of each client over rounds",
    "labels": "Label distribution of each client, held and estimated by the rule",
}
_STYLE = """
:root { color-scheme: light dark; --line: #8885; --bad: #b33c00; --soft: #8881 }
@media (prefers-color-scheme: dark) { :root { --bad: #ff9a66 } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem; overflow-wrap: anywhere } h2 { font-size: 1.15rem; margin-top: 2rem }
.bad { color: var(--bad); font-weight: 600 }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top }
td { overflow-wrap: anywhere } .wide td { overflow-wrap: normal }
figure { margin: 1rem 0 } img { max-width: 100%; height: auto; background: #fff }
pre { overflow-x: auto; background: var(--soft); padding: .7rem; font-size: .85rem }
"""


def write(
    runs: Sequence[SavedRun], folder: Path, default: Config | None = None, title: str | None = None
) -> dict[str, Path]:
    """Draw one run, or several compared, and write pictures and ``report.html``.

    Args:
        runs: The runs.
        folder: Where to write.
        default: The default configuration; settings that differ from it are shown first.  None: all are shown alike.
        title: What the run is.  None: taken from its configuration.

    Returns:
        The pictures' files by name.
    """
    if len(runs) == 1:
        title = title or ", ".join(runs[0].topics)
        names, figures = [title], draw(runs[0], title)
    else:
        names = labels(runs)
        common = [topics[0] for topics in zip(*(run.topics for run in runs), strict=True) if len(set(topics)) == 1]
        title = ", ".join([f"{len(runs)} runs compared", *common])
        figures = compare(dict(zip(names, runs, strict=True)), title)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        plot.save(figure, pictures[name])
    shown = page(dict(zip(names, runs, strict=True)), title, pictures, folder, default)
    files.write(folder / "report.html", shown.encode())
    return pictures


def draw(run: SavedRun, title: str) -> dict[str, Figure]:
    """Draw what one run has recorded."""
    figures, last = {}, run.summary["last_evaluation"]
    end = f", diverged after round {run.summary['rounds']}" if run.diverged else ""
    when = f"{title}, round {last['round']}{end}"
    if last["accuracy"] is not None:
        figures["recall"] = plot.recall_curves(run.evaluations, title + end)
    if run.reference and last["mrd"] is not None:
        figures["drop"] = plot.recall_drops(last["recall"], run.reference, when)
    if run.summary["confusion"]:
        figures["confusion"] = plot.confusion(run.summary["confusion"], when)
    if any("robustness/kappa" in row for row in run.metrics):
        figures["robustness"] = plot.kappas(run.metrics, run.summary["robustness"]["bound"], title + end)
    if run.weights:
        figures["weights"] = plot.trust_weights(run.weights, run.byzantine, title + end)
        figures["clients"] = plot.client_weights(run.weights, run.clients, run.byzantine, title + end)
    if any("estimate/0" in row for row in run.clients):
        figures["labels"] = plot.label_distributions(run.clients, title + end)
    return figures


def compare(runs: Mapping[str, SavedRun], title: str) -> dict[str, Figure]:
    """Draw several runs side by side."""
    diverged = [label for label, run in runs.items() if run.diverged]
    figures = {"accuracy": plot.accuracies({label: run.evaluations for label, run in runs.items()}, title, diverged)}
    why = {label: "diverged" if run.diverged else "not evaluated" for label, run in runs.items()}
    figures["recall"] = plot.recalls({label: run.summary["recall"] or why[label] for label, run in runs.items()}, title)
    drops = {label: run.summary["mrd"] for label, run in runs.items()}
    if any(drop is not None for drop in drops.values()):
        missing = {label: "diverged" if run.diverged else "no reference" for label, run in runs.items()}
        figures["drop"] = plot.drops({k: missing[k] if drop is None else drop for k, drop in drops.items()}, title)
    if any("success_rate" in _attack(run) for run in runs.values()):
        figures["attack"] = plot.success_rates({k: run.metrics for k, run in runs.items()}, title, diverged)
    given = {label: trust_shares(run.summary) for label, run in runs.items()}
    if any(given.values()):
        figures["weights"] = plot.shares({k: pair or "none: not a weighting" for k, pair in given.items()}, title)
    return figures


def page(
    runs: Mapping[str, SavedRun], title: str, pictures: Mapping[str, Path], folder: Path, default: Config | None = None
) -> str:
    """Write the page.

    Args:
        runs: The runs by their names.
        title: The heading.
        pictures: PNG files by name, put into the page.
        folder: Where the page will be; links to the runs' files are relative to it.
        default: The default configuration.
    """
    parts = [f"<h1>{escape(title)}</h1>", *(_status(name, run, len(runs) > 1) for name, run in runs.items())]
    several = len(runs) > 1
    settings = ["<h2>Settings</h2>", *(_settings(name, run, default, several) for name, run in runs.items())]
    results = "<h2>Results</h2>\n" + _results(runs)
    parts += [results] if several else [*settings, results]
    for name, path in pictures.items():
        caption = CAPTIONS[name]
        parts.append(f"<h2>{escape(caption)}</h2>\n{picture(path, f'{caption}: {title}')}")
    parts += settings if several else []
    parts += ["<h2>Files</h2>", *(_files(run, folder) for run in runs.values())]
    return document(title, parts)


def document(title: str, parts: Sequence[str]) -> str:
    """Join the parts of a page, in HTML."""
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def picture(path: Path, caption: str) -> str:
    """Embed a PNG file in a page."""
    image = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{image}"></figure>'


def _status(name: str, run: SavedRun, several: bool) -> str:
    done = many(run.summary["rounds"], "round")
    text = f"{name}: {run.status} after {done}" if several else f"{run.status.capitalize()} after {done}"
    reason = run.summary["reason"]
    text = escape(f"{text}; {reason}" if reason else text)
    lines = [f"<p>{text}.</p>" if run.status == "completed" else f'<p class="bad">{text}.</p>']
    beyond = run.summary.get("guarantee")
    if beyond:
        lines.append(f'<p class="bad">{escape(name if several else "The rule")}: {escape(beyond)}.</p>')
    return "\n".join(lines)


def _results(runs: Mapping[str, SavedRun]) -> str:
    """Tabulate the numbers of each run; recalls have a table of their own."""
    rows = []
    for name, run in runs.items():
        summary, last, shares = run.summary, run.summary["last_evaluation"], trust_shares(run.summary)
        accuracy = _percent(summary["accuracy"])
        unweighted = "none" if run.diverged else "not a weighting"
        if run.diverged and last["accuracy"] is not None:
            accuracy += f"; {last['accuracy']:.1%} in round {last['round']}"
        rows.append(
            {
                "run": name,
                "status": run.status,
                "rounds": str(summary["rounds"]),
                "accuracy": accuracy,
                **(
                    {}
                    if last.get("validation_accuracy") is None
                    else {"validation": _percent(last["validation_accuracy"])}
                ),
                "max-recall-drop": _percent(summary["mrd"], "none" if run.reference else "no reference"),
                **{f"attack {name.replace('_', ' ')}": _percent(value) for name, value in _attack(run).items()},
                "weight honest": _percent(shares and shares[0], unweighted),
                "weight Byzantine": _percent(shares and shares[1], unweighted),
                "kappa": kappa_text(summary["robustness"]) or "not recorded",
                **{name.replace("_", " "): _shown(value, ",") for name, value in summary["communication"].items()},
                "seconds": _shown(summary["seconds"], ".1f"),
            }
        )
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if len(rows) == 1:
        shown = table(None, [[column, rows[0][column]] for column in columns[1:]])
    else:
        shown = table(columns, [[row.get(column, "") for column in columns] for row in rows])
    return shown + _recalls(runs)


def _attack(run: SavedRun) -> dict[str, float]:
    """Get what the attack measured of its own success in the last evaluation."""
    measured: dict[str, float] = run.summary["last_evaluation"].get("attack") or {}
    return measured


def _recalls(runs: Mapping[str, SavedRun]) -> str:
    """Recall of each class: one row per class, one column per run; one run's last ones, beside its reference."""
    columns = {name: run.summary["recall"] or [] for name, run in runs.items()}
    run, *others = runs.values()
    if not others:
        columns = {"recall": run.summary["last_evaluation"]["recall"] or []}
        if run.reference and columns["recall"]:
            pairs = zip(run.reference, columns["recall"], strict=False)
            drops = [None if a is None or b is None else a - b for a, b in pairs]
            columns |= {"reference": run.reference, "drop": drops}
    c = max(map(len, columns.values()))
    rows = [[str(z), *(_percent(v[z], "no samples") if z < len(v) else "" for v in columns.values())] for z in range(c)]
    if not rows:
        return ""
    evaluated = "" if others else f", round {run.summary['last_evaluation']['round']}"
    shown = "" if c > 20 or len(columns) > 4 else " open"
    title = f"<summary>Recall of each class{evaluated}</summary>"
    return f"\n<details{shown}>{title}{table(['class', *columns], rows)}</details>"


def _settings(name: str, run: SavedRun, default: Config | None, several: bool) -> str:
    everything = "\n".join(f"{key}={value}" for key, value in flat(run.config))
    heading = f"<h3>{escape(name)}</h3>" if several else ""
    if not run.config:
        return f"{heading}<p>Not recorded.</p>"
    rows = changed(run.config, default) if default is not None else []
    first = table(["setting", "value", "default"], rows) if rows else ""
    if default is not None and not rows:
        first = "<p>The defaults.</p>"
    return f"{heading}{first}\n<details><summary>All settings</summary><pre>{escape(everything)}</pre></details>"


def _files(run: SavedRun, folder: Path) -> str:
    where = os.path.relpath(run.folder, folder)
    others = (p for p in run.folder.glob("[!.]*") if p.suffix != ".part" and p != folder / "report.html")
    names = sorted(p.name for p in others)
    links = [f'<a href="{escape(Path(where, name).as_posix())}">{escape(name)}</a>' for name in names]
    return f"<p>{escape(str(run.folder.resolve()))}: {', '.join(links)}</p>"


def table(header: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table in HTML."""
    head = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in header)}</tr>\n" if header else ""
    body = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table>\n{head}{body}\n</table></div>'


def _percent(value: float | None, none: str = "none") -> str:
    return none if value is None else f"{value:.2%}"


def _shown(value: int | float | None, form: str) -> str:
    return "not recorded" if value is None else f"{value:{form}}"
