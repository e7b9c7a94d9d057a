"""What a tournament leaves for readers: two pages, Markdown, CSV, LaTeX and pictures."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from matplotlib.figure import Figure

from lightning_fl import files, plot
from lightning_fl.run.lock import held
from lightning_fl.study.cell import Cell
from lightning_fl.study.report import Report, Section
from lightning_fl.study.standings import Estimate, Standing, standings
from lightning_fl.study.tournament import NOBODY, Entries, Panel, Place, Tournament, accuracy
from lightning_fl.study.twins import conclusion
from lightning_fl.text import many, number

_SUCCESS = "Backdoor"  # the last column, where there is one
_HEADER = ["Rule", "Rank", "Rate", "No attack", "Worst attack", "Worst class", "Attack", "kappa", "ms", _SUCCESS]
_TRIGGERED = (
    f" {_SUCCESS}: the largest share, over attacks, of the triggered test samples of other classes that are taken "
    "for the attackers' target, in the mean over the seeds that play the attack."
)
_BEST = 10  # lines of the curve, and of a table in the terminal
WORST = "worst"  # the column of the heat map by which its rows are sorted

_SKEW = "Each line is a rule: the accuracy that the worst attack leaves it, the more skewed the clients' classes are."
_HEAT = "A row is a rule, a column an attack, a cell the accuracy that it leaves; rows are sorted by their worst."

_TOLD = "Each line is a rule: what it loses where it is told another number of attackers than there are."

# What is drawn over the f that rules are told, and how to read it; the last is kappa.
_OVER_TOLD: dict[str, Callable[[Standing], float | None]] = {
    "Accuracy without attack (%)": lambda one: 100 * one.clean.mean if one.clean else None,
    "Accuracy under the worst attack (%)": lambda one: 100 * one.worst.mean if one.worst else None,
    "Measured kappa (largest over attacks)": lambda one: one.kappa or None,
}
Panels = Mapping[Panel, Sequence[Standing]]


def write(tournament: Tournament) -> Path:
    """Write the report of all that is finished by now.

    Returns:
        The page.
    """
    with held(tournament.folder, wait=True):  # several processes may share it
        tournament.refresh()
        panels = panels_of(tournament)
        whole = replace(report(tournament, panels), figures=draw(tournament, panels))
        from lightning_fl.study.standing_page import standing_page  # torch comes with it: not for --help

        page = standing_page(tournament, panels, [heading(panel) for panel in panels], introduction(tournament))
        files.write(tournament.folder / "standing.html", page)
        return next(path for path in whole.write(tournament.folder, "tournament") if path.suffix == ".html")


def panels_of(tournament: Tournament) -> Panels:
    """Rank the rules of each panel."""
    return {panel: standings(tournament, panel) for panel in tournament.panels()}


def heading(panel: Panel) -> str:
    """Name a panel.

    >>> heading(Panel("1e-1", 15)), heading(Panel("iid", 15, 0.5))
    ('Dirichlet 0.1, 15 Byzantine clients', 'iid, 15 Byzantine clients, told 8')
    """
    alpha = number(panel.skew)
    named = panel.skew if alpha is None else f"Dirichlet {alpha:g}"
    return f"{named}, {panel.byzantine} Byzantine clients" + ("" if panel.told is None else f", told {panel.f}")


def introduction(tournament: Tournament) -> list[str]:
    """Say what was played and how to read the numbers."""
    entries = tournament.entries
    known = tournament.cells()
    cells = {tournament.key(cell) for cell in [*tournament.tuning(), *known]}
    pairs = tournament.pairs({cell.labels: None for cell in known})
    planned = len(cells) + tournament.size - len(known)
    finished = [tournament.records[name] for name in cells if name in tournament.records]
    hours = sum(row["seconds"] or 0.0 for row in {row["identity"]: row for row in finished}.values()) / 3600
    versions = sorted({row["version"] for row in finished if row["version"]})
    rates, seeds = ", ".join(f"{rate:g}" for rate in entries.rates), ", ".join(map(str, entries.seeds))
    radii = entries.offered
    offered = ", ".join(f"{radius:g}" for radius in radii)
    tuned = (
        f"Each rule's rate is the one of {rates} with the best accuracy on validation samples of the clients, "
        f"{'mean' if entries.cost is None else 'the worst'} over {', '.join(entries.tuning)}, at seed "
        f"{entries.seeds[0]}"
        + ("" if entries.cost is None else f", among those that cost at most {100 * entries.cost:g} % without attack")
        + "; a run that diverges counts 0 there."
        if len(entries.rates) > 1
        else f"The server's rate is {rates} for all."
    )
    if len(radii) > 1:
        tuned += f" Rules that have a radius have it chosen with the rate, in the same way, from {offered}."
    elif radii:
        tuned += f" The radius of rules that have one is {offered}."
    last = {setting.partition("=")[0]: setting for setting in entries.base}
    settings = ", ".join(f"`{setting}`" for setting in last.values())
    told = "" if [*entries.told] == [1] else f"{', '.join(f'{multiple:g}' for multiple in entries.told)} times "
    played = f"{many(len(entries.rules), 'rule')} under {many(len(entries.attacks) - 1, 'attack')}"
    return [
        f"{played}, seed{'s' * (len(entries.seeds) > 1)} {seeds}: {len(finished)} of {planned} runs finished, "
        f"{hours:.1f} hours of training, code {', '.join(versions) or 'unknown'}. Settings: {settings}. Rules are told "
        f"{told}the number of Byzantine clients. {tuned}{_screening(entries, known)}",
        f"Accuracy and recall in percent, mean over seeds with the 95 % interval of the percentile bootstrap (of "
        f"{many(len(entries.seeds), 'seed')}: {_reach(len(entries.seeds))}). Worst attack: the least accuracy over "
        "attacks in each seed. Worst class: the least recall of a class over attacks. Attack: the one with the least "
        "mean accuracy, of those played at every seed. Rank: 1 plus the number of rules that keep more under their "
        "worst attack at every seed (a seed deals all of them the same data). kappa: squared distance from the honest "
        "mean over the honest variance, mean over rounds, under the attack where it is largest, over the seeds that "
        "play it; a single round can decide it, and it does not judge rules whose steps have another length (sums, "
        "votes of signs). ms: mean time of the rule per round, with other runs beside it. A run that diverges counts "
        "as guessing." + (_TRIGGERED if any(row["success"] is not None for row in finished) else ""),
        *([" ".join([*conclusion([*pairs.values()]), *_without_twins(entries, pairs)])] if pairs else []),
    ]


def _without_twins(entries: Entries, pairs: Collection[Place]) -> list[str]:
    """Say how many rules have no twins, which the others' do not judge."""
    rules = {place.rule for place in pairs}
    others = len(entries.rules) - len(rules)
    have = "has" if others == 1 else "have"
    return [f"{others} of {len(entries.rules)} rules {have} none."] if others else []


def _screening(entries: Entries, known: Sequence[Cell]) -> str:
    """Say which attacks further seeds play, if not all."""
    first, every = entries.seeds[0], len(entries.attacks) - 1
    further = [cell for cell in known if cell.seed != first and cell.labels.attack != NOBODY]
    met = sorted(Counter((cell.labels._replace(attack=""), cell.seed) for cell in further).values())
    if len(entries.seeds) == 1 or not entries.again or (met and met[0] == every):
        return ""
    counts = f": {met[0]} to {met[-1]} of {every}, {median(met):g} in the median" if met else ""
    return (
        f" Seed {first} plays every attack, the others those that cost the rule at least {entries.again:g} of the "
        f"accuracy that the worst one costs there, and the one that did most to a class{counts}. Where another attack "
        "does more at another seed, a rule is shown too high."
    )


def _reach(seeds: int) -> str:
    if seeds == 1:
        return "none: ranks are an order only"
    if seeds <= 3:
        share = 1 - 2 * 0.5**seeds  # of cases in which not all seeds are on one side
        return f"from the least to the largest, which holds the true mean in about {100 * share:.0f} % of cases"
    return "over resamples"


def _section(panel: Panel, found: Sequence[Standing], most: int | None = None, **more: Any) -> Section:
    """Write the table of a panel's rules; its last column stands where there are backdoors."""
    end = None if any(one.success is not None for one in found) else -1
    return Section(heading(panel), _HEADER[:end], [row_of(one)[:end] for one in found[:most]], **more)


def row_of(one: Standing) -> list[str]:
    """Write one rule's numbers."""

    def shown(estimate: Estimate | None) -> str:
        return "-" if estimate is None else estimate.text()

    return [
        one.rule,
        "-" if one.rank is None else str(one.rank),
        "-" if one.setting is None else ", radius ".join(f"{part:g}" for part in one.setting if part is not None),
        shown(one.clean),
        shown(one.worst),
        shown(one.worst_recall),
        one.attack or "-",
        "-" if one.kappa is None else f"{one.kappa:.3g}",
        "-" if one.rule_ms is None else f"{one.rule_ms:.{0 if one.rule_ms >= 10 else 1}f}",
        "-" if one.success is None else f"{100 * one.success:.1f}",
    ]


def refusals(found: Sequence[Standing]) -> list[str]:
    """Say which rules cannot be run, and why."""
    return [f"{one.rule} cannot be run: {one.refused}" for one in found if one.refused]


def remarks(found: Sequence[Standing]) -> list[str]:
    """Say which rules win, are dominated or not finished, and which rules and attacks cannot be run."""
    lines = []
    first = [one.rule for one in found if one.rank == 1]
    if first:
        tied = " (no rule is ahead of any of these at every seed)" if len(first) > 1 else ""
        lines.append(f"Rank 1: {', '.join(first)}{tied}.")
    beaten = [one.rule for one in found if one.dominated_by]
    if beaten:
        lines.append(
            f"Dominated, that is another rule is at least as good both without attack and under the worst, at every "
            f"seed: {', '.join(beaten)}."
        )
    lines += refusals(found)
    spared: dict[tuple[str, str], list[str]] = {}
    for one in found:
        for attack, reason in one.left_out.items():
            spared.setdefault((attack, reason), []).append(one.rule)
    played = sum(not one.refused for one in found if one.played)
    together: dict[tuple[str, str], list[str]] = {}
    for (attack, reason), rules in spared.items():
        against = "" if len(rules) == played else f" against {', '.join(rules)}"
        together.setdefault((against, reason), []).append(attack)
    lines += [f"{', '.join(attacks)} cannot be run{against}: {why}" for (against, why), attacks in together.items()]
    unfinished = [f"{one.rule} ({one.played} of {one.planned})" for one in found if one.played < one.planned]
    if unfinished:
        lines.append(f"Not finished: {', '.join(unfinished)}.")
    return lines


def terminal(tournament: Tournament) -> str:
    """Write the best rules of each panel for the terminal."""
    sections = []
    for panel, found in panels_of(tournament).items():
        more = [f"and {many(len(found) - _BEST, 'rule')} more"] * (len(found) > _BEST)
        sections.append(_section(panel, found, _BEST, remarks=more + refusals(found)))
    return Report("", sections=sections).terminal()


def report(tournament: Tournament, panels: Panels) -> Report:
    """Put all that is finished into a report, but for the pictures."""
    sections = [Section("Accuracy under the worst attack over label skew", picture=("skew", _SKEW))]
    sections += [Section("A wrong f", picture=("told", _TOLD))] if len(tournament.entries.told) > 1 else []
    for panel, found in panels.items():
        sections.append(_section(panel, found, remarks=remarks(found), picture=(_heat(panel), _HEAT)))
    return Report("Tournament", introduction(tournament), sections, records(panels))


def records(panels: Panels) -> list[list[object]]:
    """List the columns, and one row per rule, degree of skew and number of attackers."""
    ends = [f"{name}{end}" for name in ("clean", "worst", "worst_recall") for end in ("", "_low", "_high")]
    others = ["attack", "kappa", "rule_ms", "played", "planned", "dominated_by", "left_out", "refused", "success"]
    others += ["radius"]
    rows: list[list[object]] = [["skew", "byzantine", "told", "rule", "rank", "rate", *ends, *others]]
    for panel, found in panels.items():
        for one in found:
            estimates = [one.clean, one.worst, one.worst_recall]
            numbers = [v for e in estimates for v in ((e.mean, e.low, e.high) if e else (None, None, None))]
            rest = [one.attack, one.kappa, one.rule_ms, one.played, one.planned, "; ".join(one.dominated_by)]
            rate, radius = one.setting or (None, None)
            place = [panel.skew, panel.byzantine, panel.f, one.rule, one.rank, rate]
            rows.append([*place, *numbers, *rest, "; ".join(one.left_out), one.refused, one.success, radius])
    return rows


def draw(tournament: Tournament, panels: Panels) -> dict[str, list[Figure]]:
    """Draw the heat map of each panel, and the worst case over skew of the best rules."""
    figures: dict[str, list[Figure]] = {}
    seeds, attacks, met = tournament.entries.seeds, tournament.entries.attacks, set[str]()
    several = "1 to " * bool(_screening(tournament.entries, tournament.cells())) + many(len(seeds), "seed")
    for panel, found in panels.items():
        table: dict[str, dict[str, list[float]]] = {}
        for one in found:
            if one.setting is None or one.refused or not one.played:
                continue
            table[one.rule] = {WORST: [100 * worst for worst in one.worst_by_seed.values()]}
            for cell in tournament.of(one.rule, panel)[0]:
                row = tournament.row(cell)
                if row is not None and row["status"] != "refused":
                    table[one.rule].setdefault(cell.labels.attack, []).append(100 * accuracy(row))
        if table:
            shown = [attack for attack in attacks[1:] if any(row.get(attack) for row in table.values())]
            met.update(shown)
            title = f"Accuracy, {heading(panel)}, {several}"
            figures[_heat(panel)] = [plot.outcomes(table, shown, [NOBODY, WORST], title)]
    (_, first, told), skews = next(iter(panels)), tournament.entries.skew
    lines: dict[str, dict[str, tuple[float, float, float]]] = {}
    for skew in skews:
        for one in panels[Panel(skew, first, told)]:
            if one.worst is not None:
                worst = one.worst
                lines.setdefault(one.rule, {})[skew] = (100 * worst.mean, 100 * worst.low, 100 * worst.high)
    if len(skews) > 1 and lines:
        best = sorted(lines, key=lambda rule: (-len(lines[rule]), -mean(p[0] for p in lines[rule].values())))[:_BEST]
        under = many(len(met), "attack") + ", " + many(len(seeds), "seed")
        title = f"The {many(len(best), 'rule')} with the best worst case: {first} Byzantine clients, {under}"
        figures["skew"] = [plot.worst_over_skew({rule: lines[rule] for rule in best}, skews, title)]
    wrong = _told(tournament, panels)
    return figures | ({"told": wrong} if wrong else {})


def _told(tournament: Tournament, panels: Panels) -> list[Figure]:
    """Draw what the first panel's rules lose by a wrong f, and kappa; nothing if they are told one number."""
    from lightning_fl.theory.robustness import least_kappa  # torch comes with it: not for --help

    (skew, byzantine, _), entries = next(iter(panels)), tournament.entries
    honest = tournament.n_honest(skew, byzantine) if len(entries.told) > 1 else 0
    lines: dict[str, dict[str, dict[float, float]]] = {what: {} for what in _OVER_TOLD}
    bound: dict[float, float] = {}
    for panel, found in panels.items() if honest else ():
        multiple = 1.0 if panel.told is None else panel.told
        if (panel.skew, panel.byzantine) == (skew, byzantine):
            least = least_kappa(honest + byzantine, byzantine, panel.f).value
            bound |= {multiple: least} if least else {}
            for one in found:
                for what, read in _OVER_TOLD.items():
                    if (value := read(one)) is not None:
                        lines[what].setdefault(one.rule, {})[multiple] = value
    title = f"Rules told a wrong f: {heading(Panel(skew, byzantine))}, {many(len(entries.attacks) - 1, 'attack')}"
    return plot.over_told(lines, bound, title) if any(lines.values()) else []


def _heat(panel: Panel) -> str:
    return f"heat_{panel.skew}_{panel.byzantine}" + ("" if panel.told is None else f"_told_{panel.told:g}")
