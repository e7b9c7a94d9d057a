"""Tables of runs: the published ones of scripts/tables and your own; reads them and judges their claims.

A file has ``title``, ``base`` (overrides of train.py), ``rows`` and ``columns`` (label: overrides; or a list of
overrides, which are their own labels).  A column may also be a mapping of ``overrides`` and ``value`` (another one of
`VALUES` than the table's), or of ``worst``: the worst of other columns before it, or of ``all``.  A paper's table has
``source`` and what it prints as ``published`` (row: texts in the columns' order).  Optional: ``value``; ``interval``
(true: the mean's 95 % interval in place of the deviation); ``reference`` (rows that mrd compares with, each for those
down to the next); ``target`` (of rounds_to, %); ``chance`` (accuracy of guessing, %); ``seeds`` (how many); ``corner``
(head of the rows); ``x`` (the columns are its values: draw lines); ``note``; ``cells`` (``rows``, ``columns``,
``overrides``: further ones of some cells); ``doubtful`` (``rows``, ``columns``, ``reason``); ``claims`` (``text``, and
what `judge` compares).

``like`` names another table, or a file by its path from this one's folder.  What is missing here is taken from it;
``rows``, ``columns`` and ``published`` are added to its own, label by label.  Not taken over: what the paper prints of
a row or column that changes here, and any entry that is empty here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isnan
from pathlib import Path
from typing import Any

import yaml

from lightning_fl import yaml_file
from lightning_fl.errors import SettingError
from lightning_fl.run.config import choices, choose, spell, words
from lightning_fl.study.table_file import check, is_true, labelled, taken_over
from lightning_fl.text import said

TABLES = Path(__file__).with_name("tables").resolve()
IN_CHECKOUT = TABLES.parent.name == "scripts"  # an installed package has a copy
VALUES = {
    "accuracy": "test accuracy after the last round, %",
    "best": "largest test accuracy of all evaluations, %",
    "mrd": "max-recall-drop, percentage points",
    "client_mean": "mean accuracy of the honest clients, %, which needs data.client_scores=true",
    "client_worst": "least accuracy of an honest client, %, which needs data.client_scores=true",
    "client_tenth": "10 % quantile of the honest clients' accuracies, %, which needs data.client_scores=true",
    "loss": "training loss of the last round",
    "rounds_to": "rounds until the first evaluation at the target or above",
    "rule_ms": "mean time of the rule per round, ms",
    "fits": "mean number of BOBA's subspace fits per round",
    "explained": "share of the fitted clients' variance in BOBA's subspace, %, mean over rounds",
    "loss_ratio": "trimmed loss of BOBA's fit over that of the best subset (BOBA-ES), mean over rounds",
    "loss_ratio_95": "the same ratio, 95 % quantile over rounds",
}
OF_CLIENTS = {"client_mean": "mean", "client_worst": "worst", "client_tenth": "tenth"}
POINTS = {"accuracy", "best", "mrd", *OF_CLIENTS}  # percent that differ by percentage points
MORE_IS_BETTER = {"accuracy", "best", "explained", *OF_CLIENTS}  # of the others less is
Place = tuple[str, str]  # row and column
Value = Callable[[str, str], float | None]


@dataclass(frozen=True)
class Column:
    """Runs and what to take from them, or the worst of other columns."""

    overrides: str
    value: str
    worst: tuple[str, ...] = ()


@dataclass(frozen=True)
class Printed:
    """A number as printed in the paper."""

    text: str
    mean: float
    sd: float | None

    @classmethod
    def read(cls, text: str) -> "Printed | None":
        """Read ``91.6 (0.2)`` or ``97.76``; a dash is not a number."""
        if text == "-":
            return None
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(?: \((\d+\.\d+)\))?", text)
        if match is None:
            raise SettingError(f"a printed number looks like 91.6 (0.2) or 97.76, got {text!r}.")
        return cls(text, float(match[1]), float(match[2]) if match[2] else None)


class Table:
    """A file of scripts/tables, or one of your own.

    Args:
        name: Its stem.
        given: Its content, all leaves text.
        spelled: Its name on the command line.  None: its stem.
        like: Names of the tables that it takes over from and whose kept cells mean the same here.

    Raises:
        SettingError: If something is missing, unknown or does not fit.
    """

    def __init__(self, name: str, given: Any, spelled: str | None = None, like: Sequence[str] = ()):
        self.name, self.spelled, self.like = name, spelled or name, like
        check(given, self.spelled)
        given = given | {key: labelled(given[key]) for key in ("rows", "columns")}
        self.title, self.source, self.base = given["title"], given.get("source", ""), given.get("base", "")
        self.interval = is_true(given.get("interval", "false"))
        self.note, self.corner = given.get("note", ""), given.get("corner", "")
        self.rows: dict[str, str] = given["rows"]
        self.columns = _columns(given["columns"], given.get("value", "accuracy"))
        self.chance, self.target = float(given.get("chance", "nan")), float(given.get("target", "nan"))
        starts = [choose(row, self.rows, "row") for row in _listed(given.get("reference", []))]
        last = next((row for row in self.rows if row in starts), None)
        self.reference: dict[str, str] = {}
        for row in self.rows:
            last = row if row in starts else last
            self.reference[row] = last or row
        self._check_values(compared=bool(starts))
        self.seeds = int(given.get("seeds", 1))
        self.x: str | None = given.get("x")
        self.claims: list[dict[str, Any]] = given.get("claims", [])
        self.published: dict[Place, Printed] = {}
        for row, texts in given.get("published", {}).items():
            choose(row, self.rows, "row")
            if len(texts) != len(self.columns):
                raise SettingError(f"published needs {len(self.columns)} numbers in row {row}, got {len(texts)}.")
            for column, text in zip(self.columns, texts, strict=True):
                printed = Printed.read(text)
                if printed:
                    self.published[row, column] = printed
        self.more: dict[Place, str] = {}
        for cell, overrides in ((c, entry["overrides"]) for entry in given.get("cells", []) for c in self.cells(entry)):
            if self.columns[cell[1]].worst:
                raise SettingError(
                    f"cells change runs, which column {cell[1]} has none of; leave it out of their columns."
                )
            self.more[cell] = f"{self.more.get(cell, '')} {overrides}"
        self.doubtful = {cell: entry["reason"] for entry in given.get("doubtful", []) for cell in self.cells(entry)}
        for claim in self.claims:
            self.pairs(claim)
        texts = [printed.text.split()[0] for printed in self.published.values()]
        self.digits = max((len(text.partition(".")[2]) for text in texts), default=1)

    def _check_values(self, compared: bool) -> None:
        """Check that columns which compare have what they compare with."""
        shown = {column.value: label for label, column in self.columns.items() if not column.worst}
        if "mrd" in shown and not compared:
            raise SettingError(f"column {shown['mrd']} needs a row to compare with, got none; give reference: ROW.")
        for head, drop in self.columns.items():
            attacks = [word for word in words(drop.overrides) if re.match(r"\+?adversary=(?!none$)", word)]
            if drop.value == "mrd" and attacks:
                raise SettingError(
                    f"column {head} would compare recalls under attack, got {attacks[0]}; a max-recall-drop is that "
                    f"where nobody attacks: take adversary=none, or another value."
                )
        if "rounds_to" in shown and isnan(self.target):
            raise SettingError(
                f"column {shown['rounds_to']} needs an accuracy to reach, got none; give target: PERCENT."
            )

    @classmethod
    def load(cls, name: str) -> "Table":
        """Read a table by its name, or your own by the path of its file, which ends in .yaml.

        Raises:
            SettingError: If there is no such table, or the file is not one.
        """
        path = _path(name)
        given, like = _read(path, name)
        return cls(_name(path), given, None if _is_ours(path) else name, like)

    @property
    def own(self) -> bool:
        """Whether the file is the user's."""
        return self.spelled.endswith((".yaml", ".yml"))

    @property
    def whose(self) -> str:
        """Say whose settings the file has."""
        return "the paper's" if self.source else "the table's"

    def cells(self, where: dict[str, Any], same: Place | None = None) -> list[Place]:
        """List the cells of ``where``: its rows by its columns, by default those of ``same``, else all."""
        rows = where.get("rows", [same[0]] if same else list(self.rows))
        columns = where.get("columns", [same[1]] if same else list(self.columns))
        if rows == "others":
            assert same is not None
            rows = [row for row in self.rows if row != same[0]]
        return [
            (choose(row, self.rows, "row"), choose(column, self.columns, "column"))
            for row, column in product(rows, columns)
        ]

    def trained(self, rows: Sequence[str], columns: Sequence[str]) -> list[Place]:
        """List the cells with runs of their own that these rows and columns need, those that mrd compares with too."""
        needed = {c for column in columns for c in (self.columns[column].worst or [column])}
        cells = [(row, column) for row in rows for column in self.columns if column in needed]
        compared = [(self.reference[row], c) for row, c in cells if self.columns[c].value == "mrd"]
        return list(dict.fromkeys([*cells, *compared]))

    def runs(self) -> Iterator[tuple[Place, list[str]]]:
        """Yield each cell that is trained, with its overrides: the base's, its column's, its row's and its own."""
        base, rows = words(self.base), {row: words(text) for row, text in self.rows.items()}
        columns = {label: words(column.overrides) for label, column in self.columns.items()}
        for row, (label, column) in product(self.rows, self.columns.items()):
            if not column.worst:
                own = words(self.more.get((row, label), ""))
                yield (row, label), [*base, *columns[label], *rows[row], *own]

    def pairs(self, claim: dict[str, Any]) -> list[tuple[list[Place], float | None]]:
        """List a claim's comparisons: two cells, or one and a number, or with ``spread`` many and a number."""
        left, right = self.cells(claim["left"]), claim["right"]
        if claim["relation"] == "spread":
            return [(left, float(right))]
        if isinstance(right, str):
            return [([cell], float(right)) for cell in left]
        if is_true(claim.get("pair", "no")):
            return [([cell, other], None) for cell, other in zip(left, self.cells(claim["left"] | right), strict=True)]
        return [([cell, other], None) for cell in left for other in self.cells(right, cell)]


def _path(name: str, folder: Path = Path()) -> Path:
    """Find the file of a table: by its name, or, as its own path says, from ``folder``."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return folder / path
    if name not in names() and name in choices("experiment"):
        raise SettingError(
            f"{name} is an experiment and has no table; train it: {spell('train', f'experiment={name}')}."
        )
    return TABLES / f"{choose(name, names(), 'table')}.yaml"


def _is_ours(path: Path) -> bool:
    return path.resolve().parent == TABLES


def _name(path: Path) -> str:
    return f"own_{path.stem}" if path.stem in names() and not _is_ours(path) else path.stem


def _read(path: Path, name: str, readers: Sequence[Path] = ()) -> tuple[Any, list[str]]:
    """Read a table's file, and what it takes over from another; ``readers`` do so from it.

    Returns:
        Its content, and the names of the tables that it is like and that have the same ``target``.
    """
    if path.resolve() in readers:
        chain = " like ".join(file.stem for file in (*readers, path))
        raise SettingError(f"a table cannot be like itself, got {chain}.")
    try:
        given = yaml_file.load(path.read_text("utf-8"), yaml.BaseLoader, environment=False)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(f"{name} cannot be read as a table: {said(error)}.") from error
    empty = [key for key, value in given.items() if value == ""] if isinstance(given, dict) and "like" in given else []
    given = {key: value for key, value in given.items() if key not in empty} if empty else given
    check(given, name)
    if "like" not in given:
        return given, []
    theirs = _path(given["like"], path.parent)
    other, further = _read(theirs, given["like"], (*readers, path.resolve()))
    given = taken_over(given, {key: value for key, value in other.items() if key not in empty})
    return given, [_name(theirs), *further] if given.get("target") == other.get("target") else []


def _columns(given: dict[str, Any], usual: str) -> dict[str, Column]:
    """Read the columns; one may be the worst of measured ones before it."""
    found: dict[str, Column] = {}
    for label, entry in given.items():
        entry = {"overrides": entry} if isinstance(entry, str) else entry
        measured = {other: column.value for other, column in found.items() if not column.worst}
        worst = entry.get("worst", [])
        worst = list(measured) if worst == "all" else _listed(worst)
        wrong = [other for other in worst if choose(other, given, "column") not in measured]
        if wrong or ("worst" in entry and not worst):
            got = ", ".join(wrong) or "none"
            raise SettingError(f"column {label} can be the worst of measured ones before it, got {got}.")
        kinds = {measured[other] for other in worst} or {entry.get("value", usual)}
        if len(kinds) > 1:
            raise SettingError(f"column {label} needs columns of one value for their worst, got {sorted(kinds)}.")
        found[label] = Column(entry.get("overrides", ""), choose(kinds.pop(), VALUES, "value"), tuple(worst))
    return found


def _listed(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else given


def names() -> list[str]:
    """List the tables."""
    return sorted(path.stem for path in TABLES.glob("*.yaml"))


def judge(table: Table, claim: dict[str, Any], value: Value) -> tuple[str, str]:
    """Compare what a claim compares.

    Args:
        table: Whose claim it is.
        claim: ``left`` cells, ``relation`` (>=, <=, within, spread), ``right`` cells or number; of ``margin`` points;
            ``pair``: the first row of left with the first of right, and so on; ``share`` of the comparisons that must
            hold, by default all; ``note``: what a reader of the verdict must know.
        value: The number of a cell; None where there is none.

    Returns:
        "passed", "failed", "partly measured" or "not measured yet"; "not reached" where neither side of any reaches the
        target; "nothing to compare" where the table has no such rows; and how many comparisons hold or lack a number.
    """
    margin, share = float(claim.get("margin", 0)), float(claim.get("share", 1))
    held, known, missing, compared = 0, 0, 0, False
    for cells, number in table.pairs(claim):
        compared = True
        found = [value(*cell) for cell in cells] + ([] if number is None else [number])
        numbers = [float(entry) for entry in found if entry is not None]
        if len(numbers) < len(found):
            missing += 1
            continue
        if numbers.count(inf) > 1:  # a target that neither side has reached compares nothing
            continue
        known += 1
        *left, right = numbers
        slack = {
            ">=": left[0] - right - margin,
            "<=": right - left[0] - margin,
            "within": margin - abs(left[0] - right),
            "spread": right + margin - (max(left) - min(left)),
        }[claim["relation"]]
        held += slack >= -1e-6
    detail = ", ".join([f"{held} of {known} hold"] * bool(known) + [f"{missing} not measured"] * bool(missing))
    if not known + missing:
        return ("not reached", "by either side") if compared else ("nothing to compare", "")
    enough = share * (known + missing) - 1e-9  # which rounding may leave above a whole number
    if held + missing < enough:
        return "failed", detail
    if held >= enough:
        return "passed", detail
    return ("partly measured" if known else "not measured yet"), detail
