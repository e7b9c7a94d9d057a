"""Which rule survives: every rule under every attack and degree of label skew, over seeds.

A cell is one short run, trained in memory.  Its result is a row of ``cells.csv``, found again by the run's `identity`;
several processes may share the folder.  The server's rate of each rule is chosen first: the one with the best accuracy
on validation samples of the clients, in the mean over a few attacks.  The first seed plays every attack, the others
those that come close to the rule's worst there.
"""

import csv
import io
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from math import inf
from pathlib import Path
from statistics import mean
from traceback import format_exc
from typing import Any

import yaml
from filelock import BaseFileLock, Timeout

from lightning_fl import files
from lightning_fl.errors import DataError, MissingError, SettingError
from lightning_fl.network.threads import settle_threads
from lightning_fl.run.check import checked
from lightning_fl.run.config import choices, choose, words
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import acquired, held
from lightning_fl.run.saved import COMPLETED
from lightning_fl.study.engine import each
from lightning_fl.study.factors import Choice, Factors
from lightning_fl.study.table import TABLES

FIELDS = ["rule", "attack", "skew", "byzantine", "rate", "seed", "status", "reason", "accuracy", "worst_recall"]
FIELDS += ["validation_accuracy", "kappa", "rule_ms", "seconds", "classes", "version", "identity"]
KEPT = TABLES / "tournament.csv"
NOBODY = "none"  # the attack
FAILED = "failed"  # the status of a run that ended in an error, which is not kept

# What a tournament varies by itself, and the option that chooses it.
_OPTIONS = {
    "seed": "--seeds",
    "f": "--byzantine",
    "federation.n_byzantine": "--byzantine",
    "server.lr": "--rates",
    "aggregator": "--rules or --add",
    "adversary": "--attacks",
    "partition": "--skew",
    "partition.alpha": "--skew",
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run."""

    rule: str
    attack: str
    skew: str
    byzantine: int
    rate: float
    seed: int


@dataclass(frozen=True)
class Entries:
    """What competes.

    Args:
        rules: By label the overrides that make the rule, of the client, too, where it needs another one.
        attacks: Names of conf/adversary; ``none`` is always there.
        skew: Partitions: a name of conf/partition, or the alpha of a Dirichlet partition.
        byzantine: Numbers of Byzantine clients; rules are told the number.
        seeds: Of every cell.
        rates: Of the server, to choose from.
        tuning: Attacks under which they are chosen, by the mean accuracy on validation samples.
        base: Overrides of every run.
        again: Seeds after the first play the attacks that cost a rule at least this share, in [0, 1], of the accuracy
            that the worst one costs it at the first; 0: all.
    """

    rules: Mapping[str, Sequence[str]]
    attacks: Sequence[str]
    skew: Sequence[str]
    byzantine: Sequence[int]
    seeds: Sequence[int]
    rates: Sequence[float]
    tuning: Sequence[str]
    base: Sequence[str]
    again: float = 0.0

    @classmethod
    def choose(
        cls,
        rules: Sequence[str] | None = None,
        attacks: Sequence[str] | None = None,
        added: Sequence[str] = (),
        more: Sequence[str] = (),
        quick: bool = False,
        again: float | None = None,
        **given: Sequence[Any] | None,
    ) -> "Entries":
        """Choose by what ``tournament.yaml`` has.

        Args:
            rules: Labels; None: all of conf/aggregator, your own included, and those with client momentum, except those
                that the file calls younger than the standing.
            attacks: Names; None: all of conf/adversary, with the same exception.
            added: Further rules: a name of conf/aggregator, or ``LABEL: OVERRIDES``.
            more: Further overrides of every run; data=... and model=... replace the file's.
            quick: Whether to play the small tournament of ten minutes.
            again: What further seeds play; None: the file's.
            given: ``skew``, ``byzantine``, ``seeds``, ``rates``; None: the file's.

        Raises:
            SettingError: If there is no such rule, attack or partition.
        """
        ours = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
        small = ours["quick"] if quick else {}
        momentum = ours["momentum"]
        known = {name: [f"aggregator={name}"] for name in choices("aggregator")}
        known |= {
            f"{name} + momentum": [f"aggregator={name}", *shlex.split(momentum["overrides"])]
            for name in momentum["rules"]
        }
        of_rules = {key: option for key, option in _OPTIONS.items() if key not in ("f", "aggregator")}
        extra: dict[str, Sequence[str]] = {}
        for label, overrides in (_entry(text, known) for text in added):
            _check_free(overrides, of_rules)
            if (known | extra).get(label, overrides) != overrides:
                raise SettingError(f"there is a rule called {label} already; give --add another label.")
            extra[label] = overrides
        since = ours["since"]
        listed = rules if rules is not None else small.get("rules", [label for label in known if label not in since])
        attacked = attacks if attacks is not None else small.get("attacks")
        attacked = [name for name in choices("adversary") if name not in since] if attacked is None else attacked
        _check_free(more, _OPTIONS)
        replaced = {override.partition("=")[0] for override in more}
        parts = [ours[part] for part in ("data", "model") if part not in replaced]
        parts += [ours["base"], small.get("base", "")]
        values = {
            key: values if (values := given.get(key)) is not None else small.get(key, ours[key])
            for key in ("skew", "byzantine", "seeds", "rates")
        }
        skews: dict[tuple[str, ...], str] = {}  # 0.1 and 1e-1 are one
        for skew in values["skew"]:
            skews.setdefault(tuple(_partition(skew)), skew)
        values["skew"] = list(skews.values())
        for key, entries in {"rules": [*listed, *extra], **values}.items():
            if not entries:
                raise SettingError(f"a tournament needs at least one of {key}, got none.")
        return cls(
            {label: known[choose(label, known, "rule")] for label in listed} | extra,
            list(dict.fromkeys([NOBODY, *(choose(name, choices("adversary"), "attack") for name in attacked)])),
            tuning=ours["tuning"],
            base=[*(part for text in parts for part in shlex.split(text)), *more],
            again=float(ours["again"] if again is None else again),
            **values,
        )


def _check_free(overrides: Iterable[str], options: Mapping[str, str]) -> None:
    """Refuse overrides that the tournament would overrule."""
    for override in overrides:
        option = options.get(override.lstrip("+~").partition("=")[0])
        if option:
            raise SettingError(f"a tournament chooses this itself: give {option} in place of {override}.")


def _entry(text: str, known: Mapping[str, Sequence[str]]) -> tuple[str, Sequence[str]]:
    """Read what --add names: a known rule, or a label with overrides."""
    label, colon, overrides = text.partition(":")
    if not colon:
        return text, known[choose(text, known, "rule")]
    if not label.strip():
        raise SettingError(f"--add needs LABEL: OVERRIDES, got {text!r}.")
    return label.strip(), words(overrides)


def _partition(skew: str) -> list[str]:
    try:
        alpha = float(skew)
    except ValueError:
        return [f"partition={choose(skew, choices('partition'), 'partition')}"]
    if not 0 < alpha < inf:
        raise SettingError(f"--skew needs Dirichlet's alpha above 0 and finite, or a partition, got {skew}.")
    return ["partition=dirichlet", f"partition.alpha={alpha:g}"]


@dataclass
class Tournament:
    """The cells of a tournament and what is known about them.

    Args:
        entries: What competes.
        folder: Of ``cells.csv`` and the report.
    """

    entries: Entries
    folder: Path
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entries = self.entries
        # The number of attackers is of the base: settings of rules follow it.
        self._factors = {
            b: Factors([*entries.base, f"federation.n_byzantine={b}", f"f={b}"]) for b in entries.byzantine
        }
        self._partitions = {skew: tuple(_partition(skew)) for skew in entries.skew}
        given = checked([*entries.base, *next(iter(entries.rules.values()))])
        if len(entries.rates) > 1 and not given.data.get("validation_share"):
            raise SettingError(
                "a rate is chosen by validation samples, got no data.validation_share; set it, or give one rate "
                "(--rates 0.1)."
            )
        self._names: dict[Cell, str] = {}
        self._read: dict[Path, int] = {}
        self.refresh()

    @property
    def file(self) -> Path:
        """The results, one line per run."""
        return self.folder / "cells.csv"

    def refresh(self) -> None:
        """Load results that any process has finished since; a file is read again only if it has grown."""
        for path in (KEPT, self.file):
            size = path.stat().st_size if path.exists() else 0
            if self._read.get(path) != size:
                self._read[path] = size
                self.rows |= {row["identity"]: row for row in read(path)}

    def name(self, cell: Cell) -> str:
        """Tell the `identity` of a cell's run."""
        if cell not in self._names:
            (self._names[cell],) = self._factors[cell.byzantine].names(self._choices(cell), [cell.seed])
        return self._names[cell]

    def overrides(self, cell: Cell) -> list[str]:
        """List the overrides of a cell's run, as for train.py."""
        return [*self._factors[cell.byzantine].overrides(self._choices(cell)), f"seed={cell.seed}"]

    def _choices(self, cell: Cell) -> list[Choice]:
        rule, rate = tuple(self.entries.rules[cell.rule]), f"server.lr={cell.rate:g}"
        return [self._partitions[cell.skew], rule, (f"adversary={cell.attack}",), (rate,)]

    def row(self, cell: Cell) -> Row | None:
        """Get the result of a cell; None if it has not been played."""
        return self.rows.get(self.name(cell))

    def tuning(self) -> list[Cell]:
        """List the runs that choose the rates; none where there is one rate only."""
        pairs = [(rule, panel) for panel in self.panels() for rule in self.entries.rules]
        return [cell for rule, panel in pairs for cell in self._candidates(rule, *panel)]

    def panels(self) -> list[tuple[str, int]]:
        """List the degrees of skew by the numbers of Byzantine clients."""
        return [(skew, b) for b in self.entries.byzantine for skew in self.entries.skew]

    def _candidates(self, rule: str, skew: str, byzantine: int) -> list[Cell]:
        entries = self.entries
        pairs = product(entries.rates, entries.tuning) if len(entries.rates) > 1 else ()
        return [Cell(rule, attack, skew, byzantine, rate, entries.seeds[0]) for rate, attack in pairs]

    def rate(self, rule: str, skew: str, byzantine: int) -> float | None:
        """Choose a rule's rate; None as long as a candidate has not been played."""
        scores = dict.fromkeys(self.entries.rates, 0.0)
        for cell in self._candidates(rule, skew, byzantine):
            row = self.row(cell)
            if row is None:
                return None
            if row["status"] in COMPLETED and row["validation_accuracy"] is None:
                raise SettingError(
                    f"{rule} needs validation samples to choose its rate, got none; leave data.validation_share as it "
                    "is, or give one rate (--rates 0.1)."
                )
            scores[cell.rate] += row["validation_accuracy"] or 0.0  # a run that diverged has none
        return max(scores, key=lambda rate: scores[rate])

    def of(self, rule: str, skew: str, byzantine: int) -> tuple[list[Cell], int]:
        """List the cells of one rule that are known by now, seed by seed, and count at most how many may follow.

        They are known once its rate is; those of further seeds, once all attacks of the first have been played.
        """
        entries, rate = self.entries, self.rate(rule, skew, byzantine)
        first, *others = entries.seeds
        if rate is None:
            return [], len(entries.attacks) * len(entries.seeds)
        cells = [Cell(rule, attack, skew, byzantine, rate, first) for attack in entries.attacks]
        again = entries.attacks if not entries.again else self._close(cells)
        if again is None:
            return cells, len(entries.attacks) * len(others)
        return cells + [Cell(rule, attack, skew, byzantine, rate, seed) for seed in others for attack in again], 0

    def _close(self, cells: Sequence[Cell]) -> list[str] | None:
        """Choose the attacks of a rule's further seeds; None as long as a cell of the first is missing.

        No attack, those that cost enough, the one that did most to a class, and those that could not be run.
        """
        rows = {cell.attack: row for cell in cells if (row := self.row(cell)) is not None}
        if len(rows) < len(cells):
            return None
        met = {name: row for name, row in rows.items() if name != NOBODY and row["status"] != "refused"}
        clean, worst = accuracy(rows[NOBODY]), min(map(accuracy, met.values()), default=0.0)
        limit = max(worst, clean - self.entries.again * (clean - worst))
        harm = {name: (row["worst_recall"] or 0.0, accuracy(row)) for name, row in met.items()}
        spared = {name for name, (_, left) in harm.items() if left > limit and harm[name] > min(harm.values())}
        return [name for name in rows if name not in spared]

    def cells(self) -> list[Cell]:
        """List the cells that are known by now."""
        return [cell for panel in self.panels() for rule in self.entries.rules for cell in self.of(rule, *panel)[0]]

    @property
    def size(self) -> int:
        """How many cells there will be at most."""
        known = [self.of(rule, *panel) for panel in self.panels() for rule in self.entries.rules]
        return sum(len(cells) + following for cells, following in known)

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Leave out what is finished, and of cells with the same run all but one.

        Seed by seed, so that an unfinished tournament is a fair one, and in each by name, as if drawn: slow runs come
        among fast ones, so that the time left can be told.
        """
        left = {name: cell for cell in cells if (name := self.name(cell)) not in self.rows}
        return [left[name] for name in sorted(left, key=lambda name: (self.entries.seeds.index(left[name].seed), name))]

    def play(self, cells: Sequence[Cell], workers: int, version: str, on: str | None = None) -> Iterator[Row | None]:
        """Train cells, several at a time.

        Args:
            cells: Which ones, in this order.
            workers: How many at a time.
            version: Of the code that trains them.
            on: "ray", or the address of a cluster of Ray.  None: processes of this machine.

        Yields:
            Each result as it comes, that of a run that `FAILED` with the error's "trace"; None for one that another
            process is busy with or has finished.
        """
        with held(self.folder, wait=True):
            if not (self.file.exists() and self.file.read_bytes().startswith(_HEAD)):  # or of other columns
                files.write(self.file, b"".join([_HEAD, *map(_line, read(self.file))]))
        taken: dict[str, BaseFileLock] = {}
        left: list[Cell] = []

        def calls() -> Iterator[tuple[Cell, list[str], str, Path]]:
            for cell in cells:
                lock = self._take(cell)
                if lock is None:
                    left.append(cell)
                else:
                    taken[self.name(cell)] = lock
                    yield cell, self.overrides(cell), self.name(cell), self.folder

        try:
            for row in each(on)(_played, calls(), workers):
                if row["status"] == "interrupted" and on is None:  # by a signal, which is meant for all
                    raise KeyboardInterrupt(row["reason"])
                stopped = row.pop("stopped", None)
                if row["status"] not in ("interrupted", FAILED):
                    self._add(row | {"version": version})
                _free(taken.pop(row["identity"]))
                if stopped and on is None:  # in its last round
                    raise KeyboardInterrupt(f"stopped by {stopped}")
                yield row if row["status"] == FAILED else self.rows.get(row["identity"])
        finally:
            for lock in taken.values():
                _free(lock)
        self.refresh()
        yield from (self.row(cell) for cell in left)

    def _take(self, cell: Cell) -> BaseFileLock | None:
        """Claim a cell; None if another process plays it or has played it."""
        path = self.folder / "playing" / f"{self.name(cell)}.lock"
        path.parent.mkdir(exist_ok=True)
        try:
            lock = acquired(path, thread_local=False)
        except Timeout:
            return None
        self.refresh()
        if self.row(cell) is not None:
            _free(lock)
            return None
        return lock

    def _add(self, row: Row) -> None:
        """Add a row to the file."""
        with self.file.open("rb") as written:
            written.seek(-1, os.SEEK_END)
            cut = written.read() != b"\n"  # by a kill
        added = b"\n" * cut + _line(row)
        files.append(self.file, added)
        self.rows[row["identity"]] = row
        self._read[self.file] = self._read.get(self.file, 0) + len(added)  # unless another process has added, too


def _free(lock: BaseFileLock) -> None:
    Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def _played(cell: Cell, overrides: Sequence[str], name: str, folder: Path) -> Row:
    """Train a cell; give its row."""
    label = f"{cell.rule}, {cell.attack}, {cell.skew}, {cell.byzantine} Byzantine, rate {cell.rate:g}, seed {cell.seed}"
    return dict.fromkeys(FIELDS) | asdict(cell) | result(overrides, name, folder, label) | {"identity": name}


def result(overrides: Sequence[str], name: str, folder: Path = Path(), label: str | None = None) -> Row:
    """Train a run and take from it what a tournament shows.

    Args:
        overrides: As for train.py.
        name: The run's `identity`.
        folder: Where its loggers write, if there are any: the tournament's.
        label: What they call it.

    Returns:
        Accuracies and recall in [0, 1], null where the run diverged, and what told it to stop, if something did; a run
        that cannot be, such as a rule that needs more clients, is "refused"; one in which a rule or an attack raises
        something else has "failed".

    Raises:
        DataError: If the data cannot be read, which no other run could either.
        MissingError: If this machine lacks something, which says nothing about the run.
    """
    from lightning_fl.callback.graceful_stop import GracefulStop
    from lightning_fl.run import memory

    settle_threads()
    stop = GracefulStop()
    try:
        config = checked(overrides)
        if identity(config) != name:
            raise RuntimeError(f"code or settings changed during the tournament ({shlex.join(overrides)})")
        config.run_dir, config.run_name = str(folder / name), label
        config.run_group = config.run_group or folder.name
        summary, rows = memory.train(config, stop)
    except (DataError, MissingError):
        raise
    except SettingError as error:
        return {"status": "refused", "reason": _line_of(error)}
    except Exception as error:  # of somebody's own rule: it costs this run alone
        return {"status": FAILED, "reason": f"{type(error).__name__}: {_line_of(error)}", "trace": format_exc()}
    recall = summary["recall"]
    return {
        "status": summary["status"],
        "stopped": stop.received,
        "reason": summary["reason"],
        "accuracy": summary["accuracy"],
        "worst_recall": None if recall is None else min(value for value in recall if value is not None),
        "validation_accuracy": summary["validation_accuracy"],
        "kappa": summary["robustness"]["mean"],
        "rule_ms": 1e3 * mean(row["seconds/aggregator"] for row in rows) if rows else None,
        "seconds": summary["seconds"],
        "classes": summary["n_classes"],
    }


def accuracy(row: Row) -> float:
    """Tell a run's accuracy, in [0, 1]; a diverged run has that of guessing, 1 / c."""
    return float(row["accuracy"]) if row["accuracy"] is not None else 1 / (row["classes"] or 10)


def _line_of(error: Exception) -> str:
    return " ".join(str(error).split())


def read(path: Path) -> list[Row]:
    """Read results, numbers as numbers; none where there is no file, or of a line that is damaged.

    Raises:
        DataError: If the file has other columns, as after a spreadsheet has saved it.
    """
    if not path.exists():
        return []
    # Line by line: one that a kill has cut inside quotes would take the next ones with it.
    text = path.read_text("utf-8-sig", errors="replace")
    head, *lines = [next(csv.reader([line]), []) for line in text.splitlines()] or [FIELDS]
    if "identity" not in head:
        raise DataError(f"{path} has no column identity; restore it, remove it, or give another --folder.")
    rows = [_typed(dict(zip(head, line, strict=True))) for line in lines if len(line) == len(head)]
    return [row for row in rows if row is not None and row["identity"]]


def _typed(row: Mapping[str, str]) -> Row | None:
    whole = {"byzantine", "seed", "classes"}
    words = {"rule", "attack", "skew", "status", "reason", "version", "identity"}
    try:
        return dict.fromkeys(FIELDS) | {
            key: text if key in words else None if text == "" else int(text) if key in whole else float(text)
            for key, text in row.items()
        }
    except ValueError:
        return None


def _line(row: Row) -> bytes:
    text = io.StringIO(newline="")
    values = (row.get(key) for key in FIELDS)
    csv.writer(text, lineterminator="\n").writerow(f"{v:.6g}" if isinstance(v, float) else v for v in values)
    return text.getvalue().encode()


_HEAD = _line(dict(zip(FIELDS, FIELDS, strict=True)))


def keep(tournament: Tournament) -> Path:
    """Merge the finished cells of this tournament into scripts/tables."""
    with held(KEPT.parent, wait=True):
        tournament.refresh()
        ours = {tournament.name(cell) for cell in [*tournament.tuning(), *tournament.cells()]}
        rows = {row["identity"]: row for row in read(KEPT)}
        rows |= {name: row for name, row in tournament.rows.items() if name in ours}
        files.write(KEPT, b"".join([_HEAD, *map(_line, rows.values())]))
    return KEPT
