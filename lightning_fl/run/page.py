"""Pictures and ``report.html`` of one run or several: a single page that needs no network, scripts or other files."""

import base64
import os
import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from matplotlib.figure import Figure

from lightning_fl import files, plot
from lightning_fl.run.differences import changed, flat
from lightning_fl.run.facts import attack_texts, facts, unweighted_text
from lightning_fl.run.identity import PLACES, Config
from lightning_fl.run.saved import COMPLETED, SavedRun, labels, trust_shares
from lightning_fl.tables import Place
from lightning_fl.text import class_name, many, shown

# What each picture is called, and what it shows.
CAPTIONS = {
    "accuracy": ("Accuracy over rounds", "The share of test samples that each run's model gets right."),
    "attack": (
        "Attack success rate over rounds",
        "The share of test samples with the trigger that the model takes for the attackers' class: low is good.",
    ),
    "recall": (
        "Recall of each class",
        "The share of each class's test samples that the model gets right; a class that the attack suppresses, or that "
        "the rule shuts out with the clients who hold it, stays low.",
    ),
    "drop": (
        "Recall lost against plain averaging without attack",
        "Recall of the reference minus that of this run; the largest is the max-recall-drop.",
    ),
    "confusion": (
        "Confusion matrix of the last evaluation",
        "A row shows, in percent, for which classes the model takes the test samples of one true class; the diagonal "
        "is the recall.",
    ),
    "robustness": (
        "Squared distance from the honest mean, over the honest variance (kappa)",
        "How far each round's update was from the mean of the honest clients: 0 is that mean, 1 as far as an honest "
        "update is on average.",
    ),
    "detection": (
        "Does the rule tell who lies?",
        "The chance that it suspects a Byzantine client more than an honest one (trusts it less, if it only trusts), "
        "50 % being a guess, and the shares of both that it accuses (does not trust at all).",
    ),
    "weights": (
        "Weight that the rule gave to clients",
        "The share of a round's update that a client's own update makes up; of a rule that is not fooled, Byzantine "
        "clients have little.",
    ),
    "clients": (
        "Weight of each client over rounds",
        "A row is a client, bright where the rule trusted it; rows of class 0 are the honest clients whose largest "
        "class it is (the first of equal ones), and Byzantine clients are at the foot.",
    ),
    "labels": (
        "Label distribution of each client, held and estimated by the rule",
        "A row is a client, its colours the share of each class among its samples: truly on the left, as the rule "
        "believed on the right.",
    ),
}


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
        found = labels(runs)
        ordered = sorted(zip(found, runs, strict=True), key=lambda pair: _by_size(pair[0]))
        names, runs = [name for name, _ in ordered], [run for _, run in ordered]
        common = [topics[0] for topics in zip(*(run.topics for run in runs), strict=True) if len(set(topics)) == 1]
        title = ", ".join([f"{len(runs)} runs compared", *common])
        figures = compare(dict(zip(names, runs, strict=True)), title)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        plot.save(figure, pictures[name])
    shown = page(dict(zip(names, runs, strict=True)), title, pictures, folder, default)
    files.write(folder / "report.html", shown)
    return pictures


def draw(run: SavedRun, title: str) -> dict[str, Figure]:
    """Draw what one run has recorded."""
    figures, last = {}, run.summary["last_evaluation"]
    end = f", diverged after round {run.summary['rounds']}" if run.diverged else ""
    when = f"{title}, round {last['round']}{end}"
    if last["accuracy"] is not None:
        figures["recall"] = plot.recall_curves(run.evaluations, title + end, run.classes)
    if run.reference and last["mrd"] is not None:
        figures["drop"] = plot.recall_drops(last["recall"], run.reference, when, run.classes)
    if run.summary["confusion"]:
        figures["confusion"] = plot.confusion(run.summary["confusion"], when, run.classes)
    if any("robustness/kappa" in row for row in run.metrics):
        figures["robustness"] = plot.kappas(run.metrics, run.summary["robustness"]["bound"], title + end)
    if any("detection/auc" in row for row in run.metrics):
        figures["detection"] = plot.detections(run.metrics, title + end)
    if run.weights:
        figures["weights"] = plot.trust_weights(run.weights, run.byzantine, title + end)
        figures["clients"] = plot.client_weights(run.weights, run.clients, run.byzantine, title + end, run.classes)
    if any("estimate/0" in row for row in run.clients):
        figures["labels"] = plot.label_distributions(run.clients, title + end, run.classes)
    return figures


def compare(runs: Mapping[str, SavedRun], title: str) -> dict[str, Figure]:
    """Draw several runs side by side."""
    diverged = [label for label, run in runs.items() if run.diverged]
    figures = {"accuracy": plot.accuracies({label: run.evaluations for label, run in runs.items()}, title, diverged)}
    why = {label: "diverged" if run.diverged else "not evaluated" for label, run in runs.items()}
    recalls = {label: run.summary["recall"] or why[label] for label, run in runs.items()}
    figures["recall"] = plot.recalls(recalls, title, _classes(runs))
    drops = {label: run.summary["mrd"] for label, run in runs.items()}
    if any(drop is not None for drop in drops.values()):
        missing = {label: "diverged" if run.diverged else "no reference" for label, run in runs.items()}
        figures["drop"] = plot.drops({k: missing[k] if drop is None else drop for k, drop in drops.items()}, title)
    if any("success_rate" in _attack(run) for run in runs.values()):
        figures["attack"] = plot.success_rates({k: run.metrics for k, run in runs.items()}, title, diverged)
    given = {label: trust_shares(run.summary) for label, run in runs.items()}
    if any(given.values()):
        none = {k: "diverged" if run.diverged else unweighted_text(run.summary) for k, run in runs.items()}
        figures["weights"] = plot.shares({k: pair or f"none: {none[k]}" for k, pair in given.items()}, title)
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
    first, *others = runs.values()
    several = bool(others)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_best(runs) if several else shows(first))}</p>',
    ]
    parts += [_status(name, run, several) for name, run in runs.items()]
    parts.append('<div class="pictures">')
    for name, path in pictures.items():
        caption, meaning = CAPTIONS[name]
        parts.append(
            f"<section><h2>{escape(caption)}</h2>\n{picture([path], f'{caption}: {title}', meaning)}</section>"
        )
    found = _compared(runs) if several else table(None, list(facts(first.summary).items()))
    parts += ["</div>", "<h2>Results</h2>", found + _recalls(runs)]
    parts += ["<h2>Settings</h2>", *(_settings(name, run, default, several) for name, run in runs.items())]
    parts += ["<h2>Provenance</h2>", *(_provenance(name, run, several) for name, run in runs.items())]
    parts += ["<h2>Files</h2>", *(_files(run, folder) for run in runs.values())]
    return document(title, parts)


def shows(run: SavedRun) -> str:
    """Say in a sentence what a run shows: the accuracy, the class that lost most, and whom the rule trusted."""
    summary, last, shares = run.summary, run.summary["last_evaluation"], trust_shares(run.summary)
    said = ["diverged"] if run.diverged else []
    if last["accuracy"] is not None:
        said.append(f"{last['accuracy']:.1%} accuracy after {many(last['round'], 'round')}")
    recall = {z: value for z, value in enumerate(last["recall"] or []) if value is not None}
    lost = {z: before - recall[z] for z, before in enumerate(run.reference or []) if before is not None and z in recall}
    if lost and max(lost.values()) > 0:
        z = max(lost, key=lambda z: lost[z])
        named = class_name(z, run.classes)
        said.append(f"{named} lost most, {100 * lost[z]:.1f} points against plain averaging without attack")
    elif recall:
        z = min(recall, key=lambda z: recall[z])
        said.append(f"{class_name(z, run.classes)} has the lowest recall, {recall[z]:.1%}")
    said += [f"{name} {value}" for name, value in attack_texts(last).items()]
    if shares and run.byzantine:
        equal = summary["byzantine_share"]
        beside = "" if equal is None else f", {equal:.1%} in a plain average"
        said.append(f"Byzantine clients had {shares[1]:.1%} of the weight{beside}")
    if not run.config:
        return f"{'; '.join(said)}."
    rule, attack, data = run.topics
    against = f"against {attack}" if run.byzantine else attack
    return f"{rule} {against}, on {data}: {'; '.join(said) or 'no result'}."


def _best(runs: Mapping[str, SavedRun]) -> str:
    """Say in a sentence which of several runs is best."""
    found = {name: run.summary["accuracy"] for name, run in runs.items() if run.summary["accuracy"] is not None}
    if not found:
        return "None of them has a result."
    best, last = max(found, key=lambda name: found[name]), min(found, key=lambda name: found[name])
    text = f"Most accurate: {best}, {found[best]:.1%}"
    text += f"; least: {last}, {found[last]:.1%}" if found[last] < found[best] else ""
    return f"{text}; without a result: {', '.join(runs.keys() - found)}." if len(found) < len(runs) else f"{text}."


def document(title: str, parts: Sequence[str]) -> str:
    """Join the parts of a page, in HTML."""
    page = Template(Path(__file__).with_suffix(".html").read_text("utf-8"))
    return page.substitute(title=escape(title), body="\n".join(parts))


def picture(paths: Sequence[Path], caption: str, shows: str = "") -> str:
    """Embed PNG files in a page, never so small that their letters cannot be read: a wide one scrolls on a phone.

    Args:
        paths: The files; several stand side by side where there is room.
        caption: Their name, for those who cannot see them.
        shows: What they show, in a sentence below.
    """
    images = []
    for data in (path.read_bytes() for path in paths):
        least = round(plot.LEGIBLE * int.from_bytes(data[16:20]))  # the width in pixels
        source = f'style="min-width: {least}px" src="data:image/png;base64,{base64.b64encode(data).decode()}"'
        images.append(f'<img alt="{escape(caption)}" {source}>')
    several = f'<div class="pictures">{"".join(images)}</div>' if len(images) > 1 else "".join(images)
    return f"<figure>{several}{f'<figcaption>{escape(shows)}</figcaption>' if shows else ''}</figure>"


def _by_size(label: str) -> list[tuple[bool, float, str]]:
    """Sort labels with the numbers in them by size, words as words."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
    return [(not i % 2, float(part) if i % 2 else 0.0, part) for i, part in enumerate(parts)]


def _provenance(name: str, run: SavedRun, several: bool) -> str:
    twin = run.config.get("twin")
    found = {"seed": run.config.get("seed"), **({"twin": twin} if twin else {}), **run.summary["provenance"]}
    rows = [[key, "not recorded" if value is None else str(value)] for key, value in found.items()]
    return (f"<h3>{escape(name)}</h3>" if several else "") + table(None, rows)


def _status(name: str, run: SavedRun, several: bool) -> str:
    done = many(run.summary["rounds"], "round")
    text = f"{name}: {run.status} after {done}" if several else f"{run.status.capitalize()} after {done}"
    reason, last = run.summary["reason"], run.summary["last_evaluation"]
    text = f"{text}; {reason}" if reason else text
    if several and run.diverged and last["accuracy"] is not None:
        text += f"; accuracy {last['accuracy']:.1%} in round {last['round']}"
    text = escape(text)
    lines = [f"<p>{text}.</p>" if run.status in COMPLETED else f'<p class="bad">{text}.</p>']
    beyond = run.summary.get("guarantee")
    if beyond:
        lines.append(f'<p class="bad">{escape(name if several else "The rule")}: {escape(beyond)}.</p>')
    return "\n".join(lines)


def _compared(runs: Mapping[str, SavedRun]) -> str:
    """Tabulate the numbers of several runs, alone in their columns; what is the same for all is said once."""
    rows = []
    for name, run in runs.items():
        summary, shares = run.summary, trust_shares(run.summary) or (None, None)
        percent = {"accuracy": summary["accuracy"], "validation": summary.get("validation_accuracy")}
        percent |= {f"clients, {name}": x for name, x in (summary.get("client_accuracy") or {}).items()}
        percent |= {"max-recall-drop": summary["mrd"]}
        success, lived = _attack(run), _attack(run).get("lifespan")
        percent |= {f"attack {k.replace('_', ' ')}": value for k, value in success.items() if k != "lifespan"}
        percent |= {"weight honest": shares[0], "weight Byzantine": shares[1]}
        percent |= {name.replace("_", " "): value for name, value in summary["detection"].items()}
        kappa = {f"kappa, {key}": summary["robustness"].get(key) for key in ("mean", "max", "bound")}
        rows.append(
            {"run": name, "rounds": str(summary["rounds"])}
            | {f"{key} (%)": "–" if value is None else f"{100 * value:.2f}" for key, value in percent.items()}
            | ({} if lived is None else {"attack lifespan (rounds)": str(lived)})
            | {key: "–" if value is None else f"{value:.3g}" for key, value in kappa.items()}
            | {key: f"{value:.3g}" for key, value in (summary.get("privacy") or {}).items() if key == "epsilon"}
            | {key.replace("_", " "): _shown(value, ".3g") for key, value in summary["communication"].items()}
            | {"seconds": _shown(summary["seconds"], ".1f")}
        )
    columns = list(dict.fromkeys(column for row in rows for column in row))
    values = {column: [row.get(column, "–") for row in rows] for column in columns}
    same = [column for column in columns[1:] if len(set(values[column])) == 1 and values[column][0] != "–"]
    kept = [column for column in columns if column not in same and set(values[column]) != {"–"}]
    shown = table(kept, [list(line) for line in zip(*(values[column] for column in kept), strict=True)], "several")
    said = "; ".join(f"{column} {values[column][0]}" for column in same)
    return shown + (f"<p>The same for all: {escape(said)}.</p>" if said else "")


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
    names = _classes(runs)
    named = [f"{z} {names[z]}" if names else str(z) for z in range(c)]
    rows = [[named[z], *(_percent(v[z]) if z < len(v) else "" for v in columns.values())] for z in range(c)]
    if not rows:
        return ""
    evaluated = "" if others else f", round {run.summary['last_evaluation']['round']}"
    shown = "" if c > 20 or len(columns) > 4 else " open"
    title = f"<summary>Recall of each class{evaluated}</summary>"
    return f"\n<details{shown}>{title}{table(['class', *columns], rows)}</details>"


def _classes(runs: Mapping[str, SavedRun]) -> list[str] | None:
    """Give the classes' names where all runs have the same."""
    first, *others = (run.classes for run in runs.values())
    return first if all(other == first for other in others) else None


def _settings(name: str, run: SavedRun, default: Config | None, several: bool) -> str:
    everything = "\n".join(f"{key}={value}" for key, value in flat(run.config) if key not in PLACES)
    heading = f"<h3>{escape(name)}</h3>" if several else ""
    if not run.config:
        return f"{heading}<p>Not recorded.</p>"
    rows = changed(run.config, default) if default is not None else []
    first = table(["setting", "value", "default"], rows) if rows else ""
    if default is not None and not rows:
        first = "<p>The defaults.</p>"
    return f"{heading}{first}\n<details><summary>All settings</summary><pre>{escape(everything)}</pre></details>"


def _files(run: SavedRun, folder: Path) -> str:
    others = (p for p in run.folder.glob("[!.]*") if p.suffix != ".part" and p != folder / "report.html")
    names = sorted({"summary.json", *(p.name for p in others)})  # which a run writes after this page
    links = [f'<a href="{_address(run.folder / name, folder)}">{escape(name)}</a>' for name in names]
    return f"<p>{escape(shown(run.folder))}: {', '.join(links)}</p>"


def _address(path: Path, folder: Path) -> str:
    try:  # a dot first: the name may begin as an address does (javascript:...)
        return f"./{quote(Path(os.path.relpath(path, folder)).as_posix())}"
    except ValueError:  # on another drive
        return path.resolve().as_uri()


def table(
    header: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    kind: str = "",
    best: Collection[Place] = (),
    pages: Mapping[str, str] | None = None,
) -> str:
    """Lay out a table in HTML.

    Args:
        header: Names of the columns, if they have some.
        rows: Cells.
        kind: A class of its style.
        best: Places of the cells that stand out.
        pages: Files beside the page, by the cells that lead to them.
    """

    def cell(i: int, j: int, text: str) -> str:
        to, shown = (pages or {}).get(text), escape(text)
        shown = shown if to is None else f'<a href="./{quote(to)}">{shown}</a>'
        return f"<td>{f'<b>{shown}</b>' if (i, j) in best else shown}</td>"

    head = f"<tr>{''.join(f'<th>{escape(text)}</th>' for text in header)}</tr>\n" if header else ""
    lines = ("".join(cell(i, j, text) for j, text in enumerate(row)) for i, row in enumerate(rows))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide {kind}"><table>\n{head}{body}\n</table></div>'


def _percent(value: float | None) -> str:
    return "no samples" if value is None else f"{value:.2%}"


def _shown(value: int | float | None, form: str) -> str:
    return "not recorded" if value is None else f"{value:{form}}"
