"""What the site makes of the package while it is built: a page for each rule and attack, settings, commands, classes.

Everything is read where it is kept: docstrings, files of ``conf``, the kept cells of the tournament, RESULTS.md.
Nothing that is written here is committed.
"""

import inspect
import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from textwrap import wrap
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.utils import get_class

import lightning_fl as fl
from lightning_fl.aggregator.base import Aggregator, Weighting
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.run.assemble import knowledge, make
from lightning_fl.run.config import CONF, GROUPS, sentence
from lightning_fl.study import standing_page
from lightning_fl.study.advise import counts_weights
from lightning_fl.study.standings import Standing
from lightning_fl.study.table import TABLES
from lightning_fl.study.tournament import NOBODY, Entries, Panel, Tournament
from lightning_fl.study.tournament_report import heading, introduction, panels_of, row_of
from lightning_fl.tables import cell, markdown

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FOLDERS = ("rules", "attacks", "settings", "reference", "claims")  # written anew in each build
# Pages of the site that show a file of the checkout.
PAGES = {
    "CATALOGUE.md": "catalogue.md",
    "CHANGELOG.md": "upgrading.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "RESULTS.md": "results.md",
    "TOURNAMENT.md": "tournament.md",
}
SHOWN = {"aggregator": "rules", "adversary": "attacks"}  # groups whose choices have a page each
# What is said of a rule: properties of `Aggregator`, whose docstrings say what they mean.
DECLARED = ("robust", "exact", "moves_with", "order_matters", "remembers", "sums", "needs_server", "needs_ids")
DECLARED += ("needs_model", "needs_layout", "needs_client", "searches")
STANDINGS = {  # by protocol, the best first
    "2026.3": "In the calm, radii chosen, some rules under eleven attacks; [the tournament](/tournament.md) says how.",
    "2025": "All rules under all attacks, at rates that are not calm; [how](/tournament_2025.md).",
}
N, B, C = 115, 15, 10  # clients of the standing's rounds, attackers among them, classes


def pages() -> Iterator[tuple[str, str]]:
    """Yield every generated page: its file below ``docs`` and its text."""
    rules, attacks = names("aggregator"), names("adversary")
    yield from ((f"rules/{name}.md", rule_page(name)) for name in rules)
    yield from ((f"attacks/{name}.md", attack_page(name)) for name in attacks)
    for kind in {family(name) for name in rules}:
        yield f"rules/{kind}.inc", listed("aggregator", [name for name in rules if family(name) == kind])
    for known in {knows(name) for name in attacks}:
        yield f"attacks/{known}.inc", listed("adversary", [name for name in attacks if knows(name) == known])
    for group in GROUPS:
        yield f"settings/{group}.md", settings_page(group)
    yield "settings/train.md", f"# Settings of a run\n\n{yaml_of(CONF / 'train.yaml')}"
    yield "reference/commands.md", commands_page()
    yield "reference/python.md", python_page()
    yield from ((f"claims/{paper}.inc", claims(paper)) for paper in ("BOBA", "RAGA", "Fed-NGA", "FRPG"))


def names(group: str) -> list[str]:
    """List the choices of a group that are lightning-fl's own."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@cache
def part(group: str, name: str) -> Any:
    """Make a rule or an attack with the settings of its file."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return make(compose(f"{group}/{name}")[group])


def kind_of(group: str, name: str) -> type:
    """Find the class that a file names."""
    (target,) = re.findall(r"^_target_: (\S+)", path_of(group, name).read_text("utf-8"), re.MULTILINE)
    return get_class(target)


def family(name: str) -> str:
    """Say which family of rules.md a rule belongs to, by what is declared on its class."""
    rule = part("aggregator", name)
    if rule.needs_server:
        return "server"
    if isinstance(rule, Wrapper):
        return "around"
    if not rule.robust:
        return "undefended"
    if rule.remembers:
        return "memory"
    return "weighting" if isinstance(rule, Weighting) else "coordinates"


@cache
def knows(name: str) -> str:
    """Say what an attack goes by at most, by which attacks.md has families."""
    return knowledge(path_of("adversary", name)) or "nobody"


def listed(group: str, found: Sequence[str]) -> str:
    """List choices with the first sentence of their files, each with a link to its page."""
    lines = [f"| [`{name}`](/{SHOWN[group]}/{name}.md) | {safe(sentence(path_of(group, name)))} |" for name in found]
    return "\n".join(["| choice | what it is |", "| --- | --- |", *lines, ""])


def path_of(group: str, name: str) -> Path:
    """Find the file of a choice."""
    return CONF / group / f"{name}.yaml"


def safe(text: str) -> str:
    """Keep text from being read as Markdown."""
    return re.sub(r"([*_`<])", r"\\\1", cell(text))


def yaml_of(path: Path) -> str:
    """Show a file of settings."""
    text = path.read_text("utf-8").strip()
    return f"```yaml\n{text}\n```\n"


# Rules and attacks.


def rule_page(name: str) -> str:
    """Write a rule's page."""
    rule = part("aggregator", name)
    parts = [
        f"# {safe(name)}\n\n{safe(sentence(path_of('aggregator', name)))}",
        f"```bash\nlightning-fl train aggregator={name}\n```",
        class_of(kind_of("aggregator", name)),
        "## What it needs and promises",
        "\n".join(markdown(["", ""], facts(rule))).replace("---:", "---"),
        f"## Settings\n\n{yaml_of(path_of('aggregator', name))}",
        *standing_of(name),
        "[All rules](/rules.md) · [what the numbers mean](/tournament.md) · [laws](/contributing.md#laws)",
    ]
    return "\n\n".join(parts) + "\n"


def attack_page(name: str) -> str:
    """Write an attack's page."""
    parts = [
        f"# {safe(name)}\n\n{safe(sentence(path_of('adversary', name)))}",
        f"```bash\nlightning-fl train aggregator=boba adversary={name}\n```",
        f"**Sees**: [{knows(name)}](/attacks.md#{knows(name)}).",
        "" if name == NOBODY else class_of(kind_of("adversary", name)),
        f"## Settings\n\n{yaml_of(path_of('adversary', name))}",
        *harm_of(name),
        "[All attacks](/attacks.md) · [what the numbers mean](/tournament.md)",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def class_of(kind: type) -> str:
    """Show a class as its docstring describes it, and the paper that its module names."""
    source = (inspect.getdoc(sys.modules[kind.__module__]) or "").partition("\n\n")[2]
    directive = f".. autoclass:: {kind.__module__}.{kind.__name__}\n   :no-index:\n"
    return f"```{{eval-rst}}\n{directive}```\n\n{safe_lines(source)}"


def safe_lines(text: str) -> str:
    """Keep a docstring's paragraphs from being read as Markdown, but for what stands in backticks."""
    pieces = re.split(r"(`[^`]+`)", text.replace("``", "`"))
    return "".join(piece if piece.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", piece) for piece in pieces)


def facts(rule: Aggregator) -> list[list[str]]:
    """Say what a rule declares, and what is proven of it in the standing's rounds."""
    proven, bound, counted = rule.kappa(N, B, True), rule.guarantee(N, C), counts_weights(rule, N)
    return [
        ["It weighs clients, and runs record how far each was trusted", said(isinstance(rule, Weighting))],
        ["Updates that a round must bring, with the settings below", f"at least {rule.least_n(C)}"],
        [f"Guarantee for {N} updates and {C} classes", bound or "its bound on f holds, or it has none"],
        [f"Proven kappa, {B} of {N} Byzantine", "none known" if proven is None else f"{proven:.3g}"],
        *([["Data weights change its answer", said(counted)]] if counted is not None else []),
        *([meaning(name), said(getattr(rule, name))] for name in DECLARED),
    ]


def meaning(name: str) -> str:
    """Say what a property of `Aggregator` means, by the first sentence of its docstring."""
    text = " ".join((inspect.getdoc(getattr(Aggregator, name)) or "").split())
    text = re.split(r"[.:;](?: |$)", text)[0].replace("`", "").removeprefix("Whether ")
    return text if text[1] == " " else text[0].upper() + text[1:]  # n stays n


def said(value: Any) -> str:
    """Write a declared value."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "no"}[value]
    return str(value) if isinstance(value, str | int) else ", ".join(sorted(map(str, value))) or "none of these"


# Their standing: from the kept cells alone.


@cache
def tournament(protocol: str = "2025") -> tuple[Tournament, Mapping[Panel, Sequence[Standing]]]:
    """Read what is kept of a protocol; of 2025's that is all rules under all attacks."""
    played = Tournament(Entries.choose(protocol=protocol), TABLES)
    return played, panels_of(played)


@cache
def left(protocol: str = "2025") -> dict[tuple[str, str, str], float]:
    """Give by rule, attack and skew the accuracy in percent that is left, mean over seeds."""
    played, panels = tournament(protocol)
    return {
        (rule, attack, panel.skew): mean(value for value in values if value is not None)
        for panel in panels
        for rule in played.entries.rules
        for attack, values in standing_page.left(played, rule, panel).items()
    }


def skews() -> dict[str, str]:
    """Name the degrees of skew."""
    return {panel.skew: heading(panel).partition(",")[0] for panel in tournament()[1]}


def standing_of(name: str) -> Iterator[str]:
    """Show a rule's standings at each degree of skew, and what is left of it under each attack."""
    yield "## Its standing"
    standings = {protocol: rows for protocol in STANDINGS if (rows := ranks(name, protocol))}
    if not standings:
        yield f"Nobody has played it yet: `lightning-fl tournament --rules {name}` does."
        return
    for protocol, rows in standings.items():
        yield f"### Protocol {protocol}\n\n{STANDINGS[protocol]}"
        yield "\n".join(markdown(["Skew", "Rank", "Rate", "No attack", "Worst attack", "Worst class", "Attack"], rows))
    yield (
        f"Accuracy and recall in percent, {B} attackers beside {N - B} honest clients: mean of seeds, 95 % interval. "
        "Rows without one are of one seed, which ranks nobody."
    )
    if "2025" not in standings:
        return
    yield "### Under each attack of protocol 2025"
    attacks = {attack for rule, attack, _ in left() if rule == name}
    worst_first = sorted(attacks, key=lambda attack: min(left().get((name, attack, s), 100.0) for s in skews()))
    yield by_skew("Attack", [(attack, f"/attacks/{attack}.md", (name, attack)) for attack in worst_first])
    _, panels = tournament()
    found = [one for one in panels[[*panels][-1]] if one.rule == name and one.attack]
    if found:
        yield f"### Play the worst again\n\n{command(name, str(found[0].attack), [*panels][-1])}"


def ranks(name: str, protocol: str) -> list[list[str]]:
    """List a rule's standing under a protocol, also with momentum, at each degree of skew."""
    rows = []
    for (skew, *_), found in tournament(protocol)[1].items():
        ranked = [
            (one, row_of(one)[2:7])  # from the rate, with the radius that was chosen, to the attack
            for one in found
            if one.clean and one.worst and one.worst_recall
        ]
        for one, numbers in ranked:
            if one.rule == name or one.rule.startswith(f"{name} + "):
                rows.append([skews()[skew] + one.rule.removeprefix(name), f"{one.rank} of {len(ranked)}", *numbers])
    return rows


def harm_of(name: str) -> Iterator[str]:
    """Show what an attack leaves of the rules."""
    yield "## What it leaves of the rules"
    found = {protocol: rows for protocol in STANDINGS if (rows := harms(name, protocol))}
    if not found:
        impossible = tournament()[0].impossible.items()
        reason = next((row["reason"] for (attack, _), row in impossible if attack == name), None)
        play = f"Nobody has played it yet: `lightning-fl tournament --attacks {name}` does."
        yield f"It is not played: {safe(str(reason))}" if reason else play
        return
    for protocol, rows in found.items():
        yield f"### Protocol {protocol}\n\n{STANDINGS[protocol]}"
        yield "\n".join(markdown(["Skew", "Median accuracy left, %", "Rules below 50 %", "Its worst attack"], rows))
    *_, last = found
    rests, panels = left(last), tournament(last)[1]
    met = sorted({rule for rule, attack, _ in rests if attack == name})
    lowest = sorted(met, key=lambda rule: min(rests.get((rule, name, s), 100.0) for s in skews()))
    links = [(rule, f"/rules/{rule.partition(' + ')[0]}.md", (rule, name)) for rule in lowest]
    yield f"### Rule by rule under protocol {last}"
    yield by_skew("Rule", links, last)
    if name != NOBODY:
        yield f"### Play it again\n\n{command(lowest[0], name, [*panels][-1], last)}"


def harms(name: str, protocol: str) -> list[list[str]]:
    """Sum up what an attack leaves of a protocol's rules, at each degree of skew."""
    rows = []
    for (skew, *_), found in tournament(protocol)[1].items():
        values = {rule: value for (rule, attack, s), value in left(protocol).items() if (attack, s) == (name, skew)}
        worst = sum(one.attack == name for one in found if one.rule in values)
        broken = sum(value < 50 for value in values.values())
        if values:
            of_all = [f"{broken} of {len(values)}", f"{worst} of {len(values)}"]
            rows.append([skews()[skew], f"{median(values.values()):.1f}", *of_all])
    return rows


def by_skew(what: str, links: Sequence[tuple[str, str, tuple[str, str]]], protocol: str = "2025") -> str:
    """Show accuracies by skew, in percent, the rows with links to their pages."""
    rows = [[what, *skews().values()], ["---", *["---:"] * len(skews())]]
    for text, link, place in links:
        values = [left(protocol).get((*place, skew)) for skew in skews()]
        rows.append([f"[{safe(text)}]({link})", *("-" if value is None else f"{value:.1f}" for value in values)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def command(rule: str, attack: str, panel: Panel, protocol: str = "2025") -> str:
    """Write the command that trains the first seed's run of a rule under an attack."""
    played = tournament(protocol)[0]
    one = next(c for c in played.of(rule, panel)[0] if c.labels.attack == attack)
    where = f"{skews()[panel.skew]}, {panel.byzantine} attackers beside {N - B} honest clients, seed {one.seed}"
    lines = wrap(shlex.join(one.command), 76, break_long_words=False, break_on_hyphens=False)
    return f"{where}:\n\n```bash\nlightning-fl train \\\n    {f' {chr(92)}{chr(10)}    '.join(lines)}\n```"


# Reference.


def settings_page(group: str) -> str:
    """Show every file of a group; those of rules and attacks are on their own pages."""
    lines = [f"# `{group}=`", ""]
    if group in SHOWN:
        return "\n".join([*lines, f"Each choice has [a page](/{SHOWN[group]}.md), which shows its settings.", ""])
    for name in names(group):
        lines += [f"## {safe(name)}", "", safe(sentence(path_of(group, name))), "", yaml_of(path_of(group, name)), ""]
    return "\n".join(lines)


def commands_page() -> str:
    """Show the help of every command."""
    from lightning_fl import __main__ as command_line

    lines = ["# Command line", "", f"```text\n{inspect.getdoc(command_line)}\n```", ""]
    for path in sorted((Path(command_line.__file__).with_name("commands")).glob("[a-z]*.py")):
        name = path.stem.replace("_", "-")
        lines += [f"## lightning-fl {name}", "", f"```text\n{help_of(name)}\n```", ""]
    return "\n".join(lines)


def help_of(name: str) -> str:
    """Print a command's help into a string."""
    from lightning_fl.__main__ import run

    given, printed = sys.argv, io.StringIO()
    sys.argv = [f"lightning-fl {name}", "--help"]
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            run(name)
    finally:
        sys.argv = given
    return printed.getvalue().strip()


def python_page() -> str:
    """Show what ``import lightning_fl as fl`` offers."""
    functions, classes, groups = [], [], []
    for name in fl.__all__:
        thing = getattr(fl, name) if name != "flower" else None
        if inspect.isclass(thing):
            classes.append(f".. autoclass:: {thing.__module__}.{name}\n   :members:\n")
        elif callable(thing):
            functions.append(f".. autofunction:: {thing.__module__}.{name}\n")
        else:
            groups.append(name)
    lines = [
        "# Python\n\n`import lightning_fl as fl` offers:\n",
        "## Functions\n\n```{eval-rst}\n" + "\n".join(functions) + "```\n",
        "## Classes\n\n```{eval-rst}\n" + "\n".join(classes) + "```\n",
        "## Packages\n",
    ]
    for name in groups:
        module = import_module(f"lightning_fl.{name}")
        offered = [thing for thing in getattr(module, "__all__", []) if thing[0].isupper()]
        said_first = (inspect.getdoc(module) or "").partition("\n")[0]
        lines.append(f"`fl.{name}`\n: {safe_lines(said_first)}\n  {', '.join(f'`{thing}`' for thing in offered)}\n")
    return "\n".join(lines)


# Files of the checkout that pages include.


def claims(paper: str) -> str:
    """Take a paper's rows from the table of verdicts in RESULTS.md."""
    table = (ROOT / "RESULTS.md").read_text("utf-8").partition("<!-- verdicts: -->")[2].partition("<!-- end -->")[0]
    head, *rows = [line for line in table.splitlines() if line.startswith("|")]
    kept = [row.replace("](#", "](/results.md#") for row in rows[1:] if re.match(rf"\| \[{paper}\b", row)]
    return "\n".join([head, rows[0], *kept, ""])


def on_site(text: str) -> str:
    """Let links to files of the checkout lead to the site's pages, where there are any.

    >>> on_site("[a](RESULTS.md#speed) [b](conf/aggregator/krum.yaml) [c](docs/use/own.md) [d](examples) [e](#here)")
    '[a](/results.md#speed) [b](/rules/krum.md) [c](/use/own.md) `d` (`examples`) [e](#here)'
    """

    def lead(found: re.Match[str]) -> str:
        shown, path, anchor = found[1], found[2], found[3] or ""
        choice = re.fullmatch(r"conf/(\w+)/(\w+)\.yaml", path)
        own = re.fullmatch(r"docs/(\S+\.md)", path)
        if own:
            return f"[{shown}](/{own[1]}{anchor})"
        if path in PAGES:
            return f"[{shown}](/{PAGES[path]}{anchor})"
        if choice:
            group, name = choice.groups()
            page = f"{SHOWN[group]}/{name}.md" if group in SHOWN else f"settings/{group}.md#{name}"
            return f"[{shown}](/{page})"
        plain = shown.strip("`")
        return f"`{plain}`" if plain == path else f"`{plain}` (`{path}`)"

    return re.sub(r"(?<!!)\[([^]]+)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)", lead, text)


def write(_app: Any = None) -> None:
    """Write the pages, but leave those alone that have not changed, so that a second build is quick."""
    written = dict(pages())
    for folder in FOLDERS:
        (DOCS / folder).mkdir(parents=True, exist_ok=True)
        for path in (DOCS / folder).iterdir():
            if str(path.relative_to(DOCS)) not in written:
                path.unlink()
    for name, text in written.items():
        path = DOCS / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for picture in ROOT.glob("*.png"):
        shutil.copy(picture, DOCS / "_static")


def write_standing(app: Any, failed: Exception | None) -> None:
    """Write the standing beside the built pages."""
    if failed is None and app.builder.format == "html":
        played, panels = tournament()
        links = {name: f"rules/{name}.html" for name in names("aggregator")}
        page = standing_page.standing_page(played, panels, [*map(heading, panels)], introduction(played), links)
        (Path(app.outdir) / "standing.html").write_text(page, "utf-8")


def _include(_app: Any, path: Path, parent: str, content: list[str]) -> None:
    """Let links and pictures of an included file be the site's; of a part of RESULTS.md those within it, too."""
    if (DOCS / path).resolve().parent == ROOT:
        text = re.sub(r"!\[([^]]*)\]\((\w+\.png)\)", r"![\1](/_static/\2)", on_site(content[0]))
        content[0] = text.replace("](#", "](/results.md#") if path.stem == "RESULTS" and parent != "results" else text


def _docstring(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Keep signs of formulas, such as ``x_`` and ``|x|``, from being read as reStructuredText."""
    code = False
    for i, line in enumerate(lines):
        code = line.lstrip().startswith(">>>") or (code and bool(line.strip()))
        if not code:
            pieces = re.split(r"(``.+?``|`[^`]+`)", line)
            lines[i] = "".join(p if p.startswith("`") else re.sub(r"([*|]|_(?!\w))", r"\\\1", p) for p in pieces)


def _signature(
    app: object, what: str, name: str, obj: Any, options: object, arguments: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Show a class's constructor, as `inspect.signature` does, where Sphinx would show the `__new__` of a base."""
    if what == "class" and arguments is not None and arguments.startswith("(*args"):
        from sphinx.util.inspect import stringify_signature

        return stringify_signature(inspect.signature(obj), unqualified_typehints=True), returned
    return arguments, returned


def setup(app: Any) -> dict[str, bool]:
    """Join the build."""
    app.connect("builder-inited", write, priority=1)
    app.connect("build-finished", write_standing)
    app.connect("include-read", _include)
    app.connect("autodoc-process-docstring", _docstring, priority=1)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
