"""What a table's runs measured, as Markdown, CSV and a picture beside what the paper prints."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from itertools import product
from math import isinf, isnan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from lightning_fl import plot
from lightning_fl.run.config import spell
from lightning_fl.run.lock import held
from lightning_fl.study import store
from lightning_fl.study.grid import FIELDS, MISS, STORED, Grid, Record, read
from lightning_fl.study.pivot import half_interval
from lightning_fl.study.report import Report, Section
from lightning_fl.study.runner import duration
from lightning_fl.study.table import MORE_IS_BETTER, OF_CLIENTS, POINTS, TABLES, VALUES, Place, Table, judge, names
from lightning_fl.study.twins import MARK, MEANING, NUMBER, Pair, conclusion
from lightning_fl.tables import best_places
from lightning_fl.text import many

_DIVERGED = "diverged"
_PERCENTAGES = {"accuracy", "best", "mrd", "explained", *OF_CLIENTS}


def _digits(grid: Grid, cell: Place) -> int | None:
    """How many decimals a cell's numbers have: none of rounds, the paper's of percentages and what it prints."""
    kind = grid.table.columns[cell[1]].value
    if kind == "rounds_to":
        return 0
    printed = any(column == cell[1] for _, column in grid.table.published)
    return grid.table.digits if kind in _PERCENTAGES or printed else None


def _number(grid: Grid, cell: Place, number: float, significant: int = 3) -> str:
    """Write a number of a cell with its decimals, or with the digits that count."""
    digits = _digits(grid, cell)
    if digits is not None:
        return f"{number:.{digits}f}"
    whole = abs(number) >= 10**significant - 0.5  # what rounds to more digits is written without an exponent
    return f"{number:.0f}" if whole else f"{number:#.{significant}g}".rstrip(".")


def _spread(grid: Grid, cell: Place, values: Sequence[float]) -> str:
    """Write the spread over seeds: the deviation, or half of the mean's 95 % interval."""
    if len(values) < 2 or isinf(mean(values)):
        return ""
    half = _number(grid, cell, _half(grid.table)(values), 2)
    return f" ± {half}" if grid.table.interval else f" ({half})"


def _half(table: Table) -> Callable[[Sequence[float]], float]:
    """What a table shows around the mean of several numbers."""
    return half_interval if table.interval else stdev


def _word(grid: Grid, cell: Place) -> str:
    """The word in place of a cell's number: that it diverged, or how many runs reached the target; empty if none."""
    column, value = grid.table.columns[cell[1]], grid.mean(*cell)
    values, diverged = grid.over_seeds(cell)
    all_of_them = len(diverged) == len(grid.measured(cell))
    lost = column.value == "loss" or (all_of_them and column.value in {"accuracy", "mrd", *OF_CLIENTS})
    if diverged and (value is None or lost):
        return _DIVERGED
    if value is None or not isinf(value):
        return ""
    if column.value == "loss":  # the worst of several, one of which diverged
        return _DIVERGED
    reached = sum(not isinf(v) for v in values)
    return f"reached by {reached} of {len(values)}" if reached else "not reached"


def _plain(grid: Grid, cell: Place) -> str:
    """Write a cell's mean and spread, without marks or the paper's value."""
    value, word = grid.mean(*cell), _word(grid, cell)
    if word or value is None:
        return word or "-"
    return f"{_number(grid, cell, value)}{_spread(grid, cell, grid.over_seeds(cell)[0])}"


def cell_text(grid: Grid, cell: Place) -> tuple[str, str]:
    """Describe a cell: measured mean (s.d.) with the difference to the paper and marks, and the marks' reasons."""
    table, printed = grid.table, grid.table.published.get(cell)
    values, diverged = grid.over_seeds(cell)
    value = grid.mean(*cell)
    marks = ("†" if diverged else "") + ("?" if cell in table.doubtful else "")
    word = _word(grid, cell)
    if word:
        far = printed is not None and value is not None and abs(value - printed.mean) > MISS
        if printed is None or not far or cell in table.doubtful:
            return f"{word}{marks}", ""
        return f"{word}*{marks}", f"{cell[0]}, {cell[1]}: {word}, paper {printed.text}"
    if value is None:
        return "", ""
    text = f"**{_number(grid, cell, value)}**{_spread(grid, cell, values)}"
    if printed is None:
        return text + marks, ""
    difference, digits = value - printed.mean, _digits(grid, cell) or 0
    text += f" {round(difference, digits) + 0:+.{digits}f}".replace("-", "−")
    half = 0.5 * 10**-digits  # of the last digit printed
    most = MISS if printed.sd is None else min(MISS, 3 * max(printed.sd, half))
    missed = abs(difference) > most + half
    if not missed or cell in table.doubtful:
        return text + marks, ""
    deviations = f", {abs(difference) / printed.sd:.1f} s.d. of the paper" if printed.sd else ""
    return f"{text}*{marks}", f"{cell[0]}, {cell[1]}: {_number(grid, cell, value)}, paper {printed.text}{deviations}"


def report(grid: Grid) -> Report:
    """Put all that is measured by now into a report."""
    table = grid.table
    options = [f"--scale={grid.scale:g}"] if grid.scale != 1 else []
    options += [] if grid.told is None else [f"--told={grid.told:g}"]
    command = spell("reproduce", table.spelled, *options, *grid.more)
    source = f"{table.source}. " if table.source else ""
    paragraphs, sections = measured(grid)
    misses = [miss for cell in product(table.rows, table.columns) if (miss := cell_text(grid, cell)[1])]
    compared = sum(grid.mean(*cell) is not None for cell in table.published if cell not in table.doubtful)
    apart = f"Apart from the paper: {len(misses)} of {compared} cells"
    diverged = []
    for cell, _ in table.runs():
        found = grid.over_seeds(cell)[1]
        last = ", ".join("none" if r["accuracy"] is None else f"{r['accuracy']:.1f} %" for r in found)
        after = ", ".join(f"{r['rounds']:.0f}" for r in found)
        diverged += [f"{', '.join(cell)}: after {after} rounds; last measured accuracy {last}"] * bool(found)
    sections += [Section(apart, remarks=misses)] if compared else []
    sections += [Section("Diverged", remarks=diverged)] if diverged else []
    doubtful = [f"{row}, {column}: {reason}" for (row, column), reason in table.doubtful.items()]
    sections += [Section("Doubtful in the paper", remarks=doubtful)] if doubtful else []
    picture = figure(grid)
    figures = {} if picture is None else {grid.stem: [picture]}
    return Report(table.title, [f"{source}Measured by `{command}`", *paragraphs], sections, figures=figures)


def _seeds_text(done: Sequence[tuple[Place, int]], seeds: Sequence[int]) -> str:
    """Say which seeds are measured; if not all of every cell, how many cells have how many."""
    if not seeds:
        return ""
    named = f", seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    counts = Counter(Counter(cell for cell, _ in done).values())
    if set(counts) == {len(seeds)}:
        return named
    several = [f"{many(number, 'cell')} at {k}" for k, number in sorted(counts.items(), reverse=True)]
    return f"{named} ({', '.join(several)})"


def pairs(grid: Grid) -> dict[Place, Pair]:
    """Pair the cells that show points with their twins."""
    return grid.pairs(place for place in grid.overrides if grid.table.columns[place[1]].value in POINTS)


def instrument(grid: Grid, found: Mapping[Place, Pair]) -> list[str]:
    """Say how far the table's twins are from their runs, and whether it can carry its conclusions; nothing without."""
    if not found:
        return []
    swapped, table = copy(grid), grid.table
    swapped.records = dict(grid.records)
    for place, seed in product(grid.overrides, grid.seeds):
        twin = grid.record(place, seed, NUMBER)
        if twin is not None and grid.record(place, seed) is not None:
            swapped.records[grid.key(grid.cell(place, seed))] = twin
    verdicts = {c["text"]: [judge(table, c, made.mean)[0] for made in (grid, swapped)] for c in table.claims}
    judged = {text: ours for text, ours in verdicts.items() if {"passed", "failed"} & {*ours}}
    turned = [text for text, (run, twin) in judged.items() if run != twin]
    return conclusion(list(found.values()), turned if judged else None)


def measured(grid: Grid) -> tuple[list[str], list[Section]]:
    """Write what is measured: what it shows, the table, and the claims."""
    table, twins = grid.table, pairs(grid)
    far = {cell for cell, pair in twins.items() if pair.far}
    texts = {cell: cell_text(grid, cell)[0] + MARK * (cell in far) for cell in product(table.rows, table.columns)}
    lines = []
    if grid.changes:
        lines.append(f"**Not {table.whose} setting: {', '.join(f'`{change}`' for change in grid.changes)}.**")
    lines.append(_extent(grid, texts))
    if table.note:
        lines.append(table.note.strip())
    lines += _legend(grid, texts)
    remarks = instrument(grid, twins)
    if far:
        remarks.append(f"{MEANING}.")
    return lines, [_cells(grid, texts), Section("", remarks=remarks), _claims(grid)]


def _unpublished(table: Table) -> list[str]:
    """List the rows of which no paper prints anything."""
    return [row for row in table.rows if not any((row, column) in table.published for column in table.columns)]


def _kinds(table: Table) -> dict[str, list[str]]:
    """List the columns by what they show; without those that are the worst of others."""
    found: dict[str, list[str]] = {}
    for label, column in table.columns.items():
        if not column.worst:
            found.setdefault(column.value, []).append(label)
    return found


def _runs(grid: Grid) -> dict[tuple[Place, int], Record]:
    """Give what is measured by cell and seed."""
    return {key: record for key in product(grid.overrides, grid.seeds) if (record := grid.record(*key))}


def _extent(grid: Grid, texts: Mapping[Place, str]) -> str:
    """Say what the cells show, how many of them are measured, at which seeds, and how long that took."""
    table, kinds, runs = grid.table, _kinds(grid.table), _runs(grid)
    meaning = [VALUES[kind] + (f" ({', '.join(of)})" if len(kinds) > 1 else "") for kind, of in kinds.items()]
    target = f" Target: {table.target:g} %." if "rounds_to" in kinds else ""
    asked = [*table.published, *product(_unpublished(table), table.columns)]
    # Of a reference itself there is no drop.
    asked = [(r, c) for r, c in asked if table.columns[c].value != "mrd" or table.reference[r] != r]
    text = f"Shown: {'; '.join(meaning)}.{target} {sum(bool(texts[cell]) for cell in asked)} of {len(asked)} cells "
    text += f"measured{_seeds_text(list(runs), sorted({seed for _, seed in runs}))}"
    each = {record["identity"]: record["seconds"] or 0.0 for record in runs.values()}
    return f"{text}; {len(each)} runs, {duration(sum(each.values()))} of training." if each else f"{text}."


def _around(table: Table, over: str = "") -> str:
    """Name what stands beside a mean."""
    return f"± half of its 95 % interval{over} (Student's t)" if table.interval else f"(s.d.{over})"


def _has_seeds(grid: Grid) -> bool:
    return len({seed for _, seed in _runs(grid)}) > 1


def _legend(grid: Grid, texts: Mapping[Place, str]) -> list[str]:
    """Say how to read a cell."""
    table, kinds = grid.table, _kinds(grid.table).keys()
    counts = ""
    if kinds & {"accuracy", "best", *OF_CLIENTS}:
        chance = "" if isnan(table.chance) else f", {table.chance:g}"
        largest = ", but a largest one stays" if "best" in kinds else ""
        counts = f": its accuracy counts as chance{chance}{largest}"
    if table.published:
        return [
            f"Each cell: **measured mean** {_around(table, ' over seeds')} and its difference to the paper; below, the "
            f"paper's mean (s.d.). `*` more than {MISS:g} points or three of the paper's s.d. apart; `†` a run "
            f"diverged{counts}; `?` doubtful in the paper, not counted."
        ]
    if _has_seeds(grid):
        return [f"Each cell: **mean** over seeds {_around(table)}; `†` a run diverged{counts}."]
    return ["`†`: the run diverged."] if any("†" in text for text in texts.values()) else []


def _cells(grid: Grid, texts: Mapping[Place, str]) -> Section:
    """Write the table: what is measured, and rows that a user waits for."""
    table, waiting = grid.table, [] if grid.kept_only else _unpublished(grid.table)
    rows = [row for row in table.rows if row in waiting or any(texts[row, column] for column in table.columns)]
    columns = [column for column in table.columns if any(texts[row, column] for row in rows)]

    def text(cell: Place) -> str:
        printed = table.published.get(cell)
        return (texts[cell] or "·") + (f"<br>{printed.text}" if printed else "")

    lines = [[row, *(text((row, column)) for column in columns)] for row in rows]
    return Section("", [table.corner or " ", *columns], lines)


def _claims(grid: Grid) -> Section:
    """Judge the paper's claims."""
    lines = []
    for claim in grid.table.claims:
        verdict, detail = judge(grid.table, claim, grid.mean)
        if not (grid.kept_only and verdict == "not measured yet"):
            lines.append([claim["text"], verdict, f"{detail}; {claim['note']}" if "note" in claim else detail])
    return Section("", ["Claim", "Verdict", "Comparisons"], lines)


def brief(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> Report:
    """Put what is measured of some rows and columns into a table for the terminal and for LaTeX."""
    table = grid.table
    lines = [[row, *(_plain(grid, (row, column)) for column in columns)] for row in rows]
    numbers = [[None, *(grid.mean(row, column) for column in columns)] for row in rows]
    best = best_places(numbers, [True, *(table.columns[column].value in MORE_IS_BETTER for column in columns)])
    remarks = [f"Each cell: mean over seeds {_around(table)}."] if _has_seeds(grid) else []
    return Report(table.title, sections=[Section("", [table.corner, *columns], lines, best, remarks)])


def terminal(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Write what is measured of some rows and columns for the terminal; nothing if nothing is."""
    lines = [brief(grid, rows, columns).terminal(), *instrument(grid, pairs(grid))]
    return "\n" + "\n".join(lines) + "\n\n" if _known(grid, rows, columns) else ""


def _known(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Leave out rows of which nothing is measured."""
    return [row for row in rows if any(_plain(grid, (row, column)) != "-" for column in columns)]


def figure(grid: Grid) -> Any:
    """Draw what is measured: against the paper, over a parameter, or by name; None if there is nothing."""
    table = grid.table
    title = table.title + (f"\nNot {table.whose} setting: {', '.join(grid.changes)}" if grid.changes else "")
    if table.published:
        found = {cell: _drawn(grid, cell) for cell, _ in table.runs() if cell in table.published}
        cells = [
            plot.Compared(*cell, printed.mean, printed.sd or 0.0, values, bool(cell_text(grid, cell)[1]))
            for cell, values in found.items()
            if values and (printed := table.published[cell])
        ]
        kinds = dict.fromkeys(VALUES[table.columns[cell.column].value] for cell in cells)
        return plot.against_paper(cells, "; ".join(kinds), title) if cells else None
    first = next(iter(table.columns.values())).value
    columns = [label for label, column in table.columns.items() if column.value == first and not column.worst]
    found = {cell: values for cell in product(table.rows, columns) if (values := _drawn(grid, cell))}
    if not found:
        return None
    rows = [row for row in table.rows if any((row, column) in found for column in columns)]
    what = VALUES[first][0].upper() + VALUES[first][1:]
    if any(len(values) > 1 for values in found.values()):
        what += f"; bars: {'95 % interval of the mean' if table.interval else 'standard deviation'}"
    if table.x is None:
        groups = {column: {row: found.get((row, column), []) for row in rows} for column in columns}
        return plot.by_name(groups, rows, _half(table), what, title)
    lines = {row: {column: found.get((row, column), []) for column in columns} for row in rows}
    return plot.over_parameter(lines, columns, _half(table), table.x, what, title)


def _drawn(grid: Grid, cell: Place) -> list[float]:
    """A cell's numbers as a picture shows them: none if a run did not reach the target, or has no finite loss."""
    values = grid.over_seeds(cell)[0]
    return [] if any(map(isinf, values)) else values


def write(grid: Grid) -> Path:
    """Write the table's files: Markdown, CSV, LaTeX, HTML and picture; give the first."""
    with held(grid.folder, wait=True):  # several processes may share it
        grid.refresh()
        rows = grid.rows()
        shown = set(map(grid.place, rows))
        # Those of other settings or of other rows stay.
        rows += [row for row in read(grid.store.path) if grid.place(row) not in shown]
        store.write(grid.store.path, STORED, rows)
        columns = [*grid.table.columns]
        short = brief(grid, _known(grid, [*grid.table.rows], columns), columns)
        return report(grid).write(grid.folder, grid.stem, short)[0]


def keep(grid: Grid, dropped: Collection[Record] = ()) -> Path:
    """Merge the measured cells into scripts/tables/measured, but for those that a table keeps which this one is like.

    Args:
        grid: The table's records.
        dropped: Rows of the file to leave out.

    Returns:
        The file.
    """
    elsewhere = {(grid.place(row), row["identity"]) for row in grid.kept_elsewhere()}
    rows = [row for row in grid.rows() if (grid.place(row), row["identity"]) not in elsewhere]
    return grid.keep(grid.kept, FIELDS, rows, dropped)


def overview(folder: Path) -> str:
    """List the tables, and how many of their trained cells are measured at one seed or more."""
    known = names()
    own: dict[str, set[Place]] = {name: set() for name in known}
    other: dict[str, set[Place]] = {name: set() for name in known}
    for path in [*folder.glob("*.csv"), *(TABLES / "measured").glob("*.csv")]:
        name = max((name for name in known if f"{path.stem}_".startswith(f"{name}_")), key=len, default=None)
        if name is not None:
            cells = own if path.stem == name else other
            cells[name] |= {(row["row"], row["column"]) for row in read(path)}
    lines = []
    for name, table in zip(known, map(Table.load, known), strict=True):
        trained = {cell for cell, _ in table.runs()}
        more = len(trained & other[name])
        beside = f" ({many(more, 'cell')} at other settings)" if more else ""
        lines.append([name, f"{len(trained & own[name])}/{len(trained)}", table.title + beside])
    width = max(map(len, known))
    rows = [f"  {name:<{width}}  {done:>7}  {title}" for name, done, title in lines]
    return "\n".join(["Tables, and how many of their trained cells are measured at their own settings:", *rows])
