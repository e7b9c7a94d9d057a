"""Which rule survives: every rule under every attack and degree of label skew, over seeds.

A cell is one short run, trained in memory.  Its result is a row of ``cells.csv``, found again by its labels and its
seed; several processes may share the folder.  Attacks that cannot be run are found before the first run.  The server's
rate is chosen for each rule first, and with it the radius of a rule that has one, where the protocol offers several: by
accuracy on validation samples of the clients, in the mean or the worst over a few attacks.  The first seed plays every
attack, the others those that come close to the rule's worst there.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from statistics import mean
from traceback import format_exc
from typing import Any, NamedTuple, TypeVar, get_args

import yaml
from filelock import BaseFileLock
from omegaconf import OmegaConf

from lightning_fl.errors import DataError, MissingError, SettingError
from lightning_fl.network.threads import settle_threads
from lightning_fl.run.check import checked
from lightning_fl.run.config import choices, choose, file_of, words
from lightning_fl.run.facts import least_recall
from lightning_fl.run.identity import beside, identity, overridden
from lightning_fl.run.saved import COMPLETED
from lightning_fl.study import store
from lightning_fl.study.cell import Cell, f_told
from lightning_fl.study.runner import Runner
from lightning_fl.study.store import Record
from lightning_fl.study.study import Study
from lightning_fl.study.table import TABLES
from lightning_fl.study.twins import NUMBER, drawn
from lightning_fl.text import number, said

FIELDS = ["rule", "attack", "skew", "byzantine", "rate", "seed", "status", "reason", "accuracy", "worst_recall"]
FIELDS += ["validation_accuracy", "kappa", "rule_ms", "seconds", "classes", "version", "identity", "twin"]
FIELDS += ["told"]  # f as a multiple of the true number; none: that number
FIELDS += ["success"]  # a backdoor's success rate at the end
FIELDS += ["radius"]  # the rule's, where it was chosen; none: its own
STORED = [*FIELDS, "key"]
PROTOCOLS = Path(__file__).with_name("protocols")
PROTOCOL = "2026.3"  # where none is given
NOBODY = "none"  # the attack
_NO_VALIDATION = (
    "rates and radii are chosen by validation samples, got no data.validation_share; set it, or give one of each "
    "(--rates 0.1 --radii 1)."
)
FAILED = "failed"  # the status of a run that ended in an error, which is not kept

# What a protocol's file need not set.
_SILENT: dict[str, Any] = {"rules": None, "attacks": None, "told": (1.0,), "cost": None, "radii": ()}

_Choice = TypeVar("_Choice")

# What a tournament varies by itself, and the option that chooses it.
_OPTIONS = {
    "seed": "--seeds",
    "twin": "--twins",
    "f": "--byzantine",
    "federation.n_byzantine": "--byzantine",
    "server.lr": "--rates",
    "aggregator": "--rules or --add",
    "adversary": "--attacks",
    "partition": "--skew",
    "partition.alpha": "--skew",
}


class Place(NamedTuple):
    """What tells a cell from others of its seed."""

    rule: str
    attack: str
    skew: str
    byzantine: int
    rate: float | None
    told: float | None = None
    radius: float | None = None


class Panel(NamedTuple):
    """What rules are compared at: label skew, how many attack, and what multiple of that rules are told; None: 1."""

    skew: str
    byzantine: int
    told: float | None = None

    @property
    def f(self) -> int:
        """How many rules are told."""
        return self.byzantine if self.told is None else f_told(self.told, self.byzantine)


class Setting(NamedTuple):
    """What is chosen for a rule: the server's rate and, where the protocol has some, the rule's radius."""

    rate: float
    radius: float | None = None


@dataclass(frozen=True)
class Entries:
    """What competes.

    Args:
        rules: The overrides that make each rule, of the client, too, where it needs another one; by label.
        attacks: Names of conf/adversary; ``none`` is always there.
        skew: Partitions: a name of conf/partition, or the alpha of a Dirichlet partition.
        byzantine: Numbers of Byzantine clients.
        seeds: Seeds of every cell.
        rates: Rates of the server, to choose from.
        tuning: Attacks under which they are chosen, by the accuracy on validation samples; see ``cost``.
        base: Overrides of every run.
        again: Seeds after the first play the attacks that cost a rule at least this share, in [0, 1], of the accuracy
            that the worst one costs it at the first; 0: all.
        told: Multiples of the true number that rules are told as f, at least 0; rounded, halves up.
        protocol: The file of ``protocols`` that the settings are from.
        cost: A rate is chosen by the worst accuracy in place of the mean, among those that cost at most this share, in
            [0, 1], where nobody attacks; None: by the mean, among all.
        radii: What the ``radius`` of a rule that has one is chosen from, together with its rate; none: its own.
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
    told: Sequence[float] = (1.0,)
    protocol: str = PROTOCOL
    cost: float | None = None
    radii: Sequence[float] = ()

    @classmethod
    def choose(
        cls,
        rules: Sequence[str] | None = None,
        attacks: Sequence[str] | None = None,
        added: Sequence[str] = (),
        more: Sequence[str] = (),
        quick: bool = False,
        knows: Sequence[str] | None = None,
        protocol: str = PROTOCOL,
        **given: Any,
    ) -> "Entries":
        """Choose by what a file of ``protocols`` has.

        Args:
            rules: Labels; None: the file's, or all of conf/aggregator, yours included, and some with client momentum.
            attacks: Names; None: the file's, or all of conf/adversary.
            added: Further rules: a name of conf/aggregator, or ``LABEL: OVERRIDES``.
            more: Further overrides of every run; data=... and model=... replace the file's.
            quick: Whether to play the small tournament.
            knows: Leave out attacks that go by anything else (`Adversary.knows`); None: none.
            protocol: The file's name.
            given: ``skew``, ``byzantine``, ``seeds``, ``rates``, ``radii``, ``again``, ``told``; None: the file's.

        Raises:
            SettingError: If there is no such rule, attack, partition or protocol.
        """
        protocol = choose(protocol, sorted(path.stem for path in PROTOCOLS.glob("*.yaml")), "protocol")
        ours = _settings(protocol)
        small = ours["quick"] if quick else {}
        chosen = {"rules": rules, "attacks": attacks, **given}
        values = _SILENT | ours | small | {key: value for key, value in chosen.items() if value is not None}
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
        listed, every = known if values["rules"] is None else values["rules"], choices("adversary")
        attacked = every if values["attacks"] is None else values["attacks"]
        attacked = [choose(name, every, "attack") for name in attacked]
        if knows is not None:
            from lightning_fl.adversary.base import Knowledge
            from lightning_fl.run.assemble import knowledge

            meant = [choose(kind, get_args(Knowledge), "knowledge") for kind in knows]
            attacked = [name for name in attacked if knowledge(file_of("adversary", name)) in meant]
        _check_free(more, _OPTIONS | ({"aggregator.radius": "--radii"} if values["radii"] else {}))
        replaced = {override.partition("=")[0] for override in more}
        parts = [ours[part] for part in ("data", "model") if part not in replaced]
        parts += [ours["base"], small.get("base", "")]
        skews: dict[tuple[str, ...], str] = {}  # 0.1 and 1e-1 are one
        for skew in values["skew"]:
            skews.setdefault(tuple(_partition(skew)), skew)
        values |= {"skew": list(skews.values()), "rules": [*listed, *extra]}
        for key in ("rules", "skew", "byzantine", "seeds", "rates"):
            if not values[key]:
                raise SettingError(f"a tournament needs at least one of {key}, got none.")
        taken = ("skew", "byzantine", "seeds", "rates", "tuning", "again", "told", "cost", "radii")
        return cls(
            {label: known[choose(label, known, "rule")] for label in listed} | extra,
            list(dict.fromkeys([NOBODY, *attacked])),
            base=[*(part for text in parts for part in shlex.split(text)), *more],
            protocol=protocol,
            **{key: values[key] for key in taken},
        )

    def settings(self, rule: str) -> list[Setting]:
        """List what a rule's setting is chosen from."""
        radii = self.radii if self.radii and _has_radius(self.rules[rule]) else [None]
        return [Setting(*pair) for pair in product(self.rates, radii)]

    @property
    def offered(self) -> list[float]:
        """The radii at which rules that have one are played, to choose from where there are several."""
        found = (setting.radius for rule in self.rules for setting in self.settings(rule))
        return list(dict.fromkeys(radius for radius in found if radius is not None))


def _settings(protocol: str) -> dict[str, Any]:
    """Read a protocol's file; one that is ``like`` another has what it does not set from there, in ``quick``, too."""
    found: dict[str, Any] = yaml.safe_load((PROTOCOLS / f"{protocol}.yaml").read_text("utf-8"))
    if "like" not in found:
        return found
    theirs = _settings(found["like"])
    return theirs | found | {"quick": theirs["quick"] | found.get("quick", {})}


def _lineage(protocol: str) -> list[str]:
    """List the protocols whose runs are this one's, too, such as those at other rates; the last is itself."""
    like = yaml.safe_load((PROTOCOLS / f"{protocol}.yaml").read_text("utf-8")).get("like")
    same = like is not None and all(
        _settings(like)[part] == _settings(protocol)[part] for part in ("data", "model", "base", "momentum")
    )
    return [*(_lineage(like) if same else []), protocol]


def _check_free(overrides: Iterable[str], options: Mapping[str, str]) -> None:
    """Refuse overrides that the tournament would overrule."""
    for override in overrides:
        option = options.get(overridden(override))
        if option:
            raise SettingError(f"a tournament chooses this itself: give {option} in place of {override}.")


def _has_radius(overrides: Iterable[str]) -> bool:
    """Whether the file of a rule has a radius that its overrides leave open."""
    made = {overridden(override): override.partition("=")[2] for override in overrides}
    if "aggregator" not in made or "aggregator.radius" in made:
        return False
    return "radius" in _settings_in(file_of("aggregator", made["aggregator"]))


@cache
def _settings_in(path: Path) -> frozenset[str]:
    return frozenset(map(str, OmegaConf.load(path) if path.exists() else ()))  # composing says that it is not there


def _entry(text: str, known: Mapping[str, Sequence[str]]) -> tuple[str, Sequence[str]]:
    """Read what --add names: a known rule, or a label with overrides."""
    label, colon, overrides = text.partition(":")
    if not colon:
        return text, known[choose(text, known, "rule")]
    if not label.strip():
        raise SettingError(f"--add needs LABEL: OVERRIDES, got {text!r}.")
    return label.strip(), words(overrides)


def _partition(skew: str) -> list[str]:
    alpha = number(skew)
    if alpha is None:
        return [f"partition={choose(skew, choices('partition'), 'partition')}"]
    if not 0 < alpha < inf:
        raise SettingError(f"--skew needs Dirichlet's alpha above 0 and finite, or a partition, got {skew}.")
    return ["partition=dirichlet", f"partition.alpha={alpha:g}"]


class Tournament(Study):
    """The cells of a tournament and what is known about them.

    Which cells there are depends on results.  For each rule and panel, `tuning` lists first its runs without attack at
    every setting and then, for the settings that cost little, those under the attacks that choose; this gives its
    setting.  `cells` lists every attack at the first seed with that setting and then, at the other seeds, those that
    did most.  Both list what is known by now; `tuning_following` and `size` say how many more there may be.

    Args:
        entries: What competes.
        folder: Folder of ``cells.csv`` and the report.
    """

    labels = Place._fields

    def __init__(self, entries: Entries, folder: Path):
        self.entries, self.folder, self.seeds = entries, folder, entries.seeds
        self.impossible: dict[tuple[str, int], Record] = {}  # by attack and number of Byzantine clients
        self._partitions = {skew: tuple(_partition(skew)) for skew in entries.skew}
        super().__init__(folder / "cells.csv", STORED)
        standing = Entries.choose(protocol=entries.protocol)
        self.standing = _without_beside(entries.base) == _without_beside(standing.base)
        *earlier, self.kept = (TABLES / f"tournament_{name}.csv" for name in _lineage(entries.protocol))
        self._earlier = [row for path in earlier for row in store.read(path, FIELDS)]
        for row in [*self._earlier, *store.read(self.kept, FIELDS)] if self.standing else ():
            self.put(row, kept=True)
        self.refresh()

    def cell_of(self, row: Record) -> Cell | None:
        """Give the cell of a record; see `Study`."""
        place = Place(*(row[field] for field in Place._fields))
        if not place.rule:
            return self._plain(place.attack, place.byzantine)
        if (
            None in (place.attack, place.skew, place.byzantine, place.rate, row["seed"])
            or place.rule not in self.entries.rules
            or place.skew not in self._partitions
        ):
            return None
        return self.cell(place, row["seed"], row["twin"])

    def put(self, row: Record, kept: bool = False) -> bool:
        """Let a record count, also that an attack cannot be run."""
        counts = super().put(row, kept)
        if counts and not row["rule"]:
            self.impossible[row["attack"], row["byzantine"]] = row
        return counts

    def own(self, rows: Iterable[Record]) -> list[Record]:
        """Leave out what is kept of an earlier protocol with the same runs."""
        earlier = {self.place(row) for row in self._earlier}
        return [row for row in rows if self.place(row) not in earlier]

    def cell(self, place: Place, seed: int, twin: int | None = None) -> Cell:
        """Give the cell of a place at a seed, or its twin."""
        told = Panel(place.skew, place.byzantine, place.told).f
        numbers = [f"federation.n_byzantine={place.byzantine}", f"f={told}"]  # rules follow them
        made = [*self._partitions[place.skew], *self.entries.rules[place.rule], f"adversary={place.attack}"]
        made, rate = [*made, f"server.lr={place.rate:g}"], f"rate {place.rate:g}"
        if place.radius is not None:
            made += [f"aggregator.radius={float(place.radius)}"]  # 1.0, as conf has it: 1 would be another name
            rate += f", radius {place.radius:g}"
        title = f"{place.rule}, {place.attack}, {place.skew}, {place.byzantine} Byzantine, {rate}, seed {seed}"
        title += ("" if place.told is None else f", told {told}") + ("" if twin is None else ", twin")
        return Cell(place, (*self.entries.base, *numbers, *made), seed, title, twin)

    def _plain(self, attack: str, byzantine: int) -> Cell:
        """Give the run of an attack on plain averaging, which tells whether it can be run at all."""
        entries = self.entries
        numbers = [f"federation.n_byzantine={byzantine}", f"f={byzantine}"]
        made = [*self._partitions[entries.skew[0]], "aggregator=average", f"adversary={attack}"]
        place = Place("", attack, "", byzantine, None)
        return Cell(place, (*entries.base, *numbers, *made), entries.seeds[0], f"average, {attack}")

    def check(self, runner: Runner, version: str) -> None:
        """Find the attacks that cannot be run, whatever the rule; those that have been are not tried.

        Raises:
            SettingError: If train.py would refuse a rule's settings, or nothing would choose between rates.
        """
        entries = self.entries
        known = {(row["attack"], row["byzantine"]) for row in self.records.values()} | self.impossible.keys()
        played = {row["rule"] for row in self.records.values()}
        for rule in entries.rules:
            if rule not in played:
                first, *others = entries.settings(rule)
                cell = self._at(rule, NOBODY, Panel(entries.skew[0], entries.byzantine[0]), first, entries.seeds[0])
                given = checked(cell.command)
                if others and not given.data.get("validation_share"):
                    raise SettingError(_NO_VALIDATION)
        pairs = [pair for pair in product(entries.attacks[1:], entries.byzantine) if pair not in known]
        self.store.begin()
        for cell, reason in runner.each(_possible, [(self._plain(*pair),) for pair in pairs]):
            if reason:
                self.add(cell, {"status": "refused", "reason": reason, "version": version})

    def n_honest(self, skew: str, byzantine: int) -> int:
        """Count the honest clients."""
        from hydra.utils import instantiate

        rule = next(iter(self.entries.rules))
        setting = self.entries.settings(rule)[0]
        config = checked(self._at(rule, NOBODY, Panel(skew, byzantine), setting, self.seeds[0]).command)
        return len(instantiate(config.federation).honest_ids)

    def attacks(self, byzantine: int) -> list[str]:
        """List the attacks that can be run."""
        return [attack for attack in self.entries.attacks if (attack, byzantine) not in self.impossible]

    def tuning(self) -> list[Cell]:
        """List the runs that choose the settings; none where there is one only."""
        pairs = [(rule, panel) for panel in self.panels() for rule in self.entries.rules]
        return [cell for rule, panel in pairs for cell in self._candidates(rule, panel)[0]]

    @property
    def tuning_following(self) -> int:
        """How many runs may follow those of `tuning` at most, once these are known."""
        return sum(self._candidates(rule, panel)[1] for panel in self.panels() for rule in self.entries.rules)

    def panels(self) -> list[Panel]:
        """List the degrees of skew by the numbers of Byzantine clients, and by what rules are told."""
        entries = self.entries
        told = [None if multiple == 1 else multiple for multiple in entries.told]
        return [Panel(skew, b, m) for b in entries.byzantine for m in told for skew in entries.skew]

    def _candidates(self, rule: str, panel: Panel) -> tuple[list[Cell], int]:
        """List what chooses a rule's setting: where it may cost little, attacks are met at such settings alone.

        They are known once all have been played where nobody attacks; until then, count how many they may be.
        """
        entries, settings = self.entries, self.entries.settings(rule)
        tuning = [attack for attack in entries.tuning if (attack, panel.byzantine) not in self.impossible]

        def listed(attacks: Iterable[str], settings: Iterable[Setting]) -> list[Cell]:
            return [self._at(rule, attack, panel, one, entries.seeds[0]) for one, attack in product(settings, attacks)]

        if len(settings) == 1:
            return [], 0
        if entries.cost is None:
            return listed(tuning, settings), 0
        attacked = [attack for attack in tuning if attack != NOBODY]
        clean = listed([NOBODY], settings)
        rows = [self.row(cell) for cell in clean]
        if not all(rows):
            return clean, len(attacked) * len(settings)
        found = {one: self._validated(rule, row) for one, row in zip(settings, rows, strict=True) if row}
        near = cheap(found, entries.cost)
        return clean + listed(attacked, near if len(near) > 1 else ()), 0

    def _at(self, rule: str, attack: str, panel: Panel, setting: Setting, seed: int) -> Cell:
        place = Place(rule, attack, panel.skew, panel.byzantine, setting.rate, panel.told, setting.radius)
        return self.cell(place, seed)

    def setting(self, rule: str, panel: Panel) -> Setting | None:
        """Choose a rule's setting; None as long as a candidate has not been played."""
        found: dict[Setting, dict[str, float]] = {setting: {} for setting in self.entries.settings(rule)}
        for cell in self._candidates(rule, panel)[0]:
            row = self.row(cell)
            if row is None:
                return None
            place: Place = cell.labels
            assert place.rate is not None
            found[Setting(place.rate, place.radius)][place.attack] = self._validated(rule, row)
        return best(found, self.entries.cost)

    @staticmethod
    def _validated(rule: str, row: Record) -> float:
        if row["status"] in COMPLETED and row["validation_accuracy"] is None:
            raise SettingError(
                f"{rule} needs validation samples to choose its rate, got none; leave data.validation_share as it "
                "is, or give one rate, and one radius (--rates 0.1 --radii 1)."
            )
        return row["validation_accuracy"] or 0.0  # a run that diverged has none

    def of(self, rule: str, panel: Panel) -> tuple[list[Cell], int]:
        """List the cells of one rule that are known by now, seed by seed, and count at most how many may follow.

        They are known once its setting is; those of further seeds, once all attacks of the first have been played.
        """
        attacks, setting, (first, *others) = self.attacks(panel.byzantine), self.setting(rule, panel), self.seeds
        if setting is None:
            return [], len(attacks) * (1 + len(others))

        def listed(attacks: Sequence[str], seed: int) -> list[Cell]:
            return [self._at(rule, attack, panel, setting, seed) for attack in attacks]

        cells = listed(attacks, first)
        rows = {cell.labels.attack: row for cell in cells if (row := self.row(cell)) is not None}
        refused = {attack for attack, row in rows.items() if row["status"] == "refused"}
        if NOBODY in refused:
            return cells[:1], 0
        if not self.entries.again:
            again = attacks
        elif len(rows) == len(cells):
            again = self._close({attack: row for attack, row in rows.items() if attack not in refused})
        else:
            return cells, len(attacks) * len(others)
        further = [cell for seed in others for cell in listed([a for a in attacks if a not in refused], seed)]
        # What has been played all the same, as by an earlier screening, counts: it is known.
        return cells + [cell for cell in further if cell.labels.attack in again or self.row(cell) is not None], 0

    def _close(self, rows: Mapping[str, Record]) -> list[str]:
        """Choose the attacks of a rule's further seeds by its runs at the first.

        No attack, those that cost enough, and the one that did most to a class.
        """
        met = {name: row for name, row in rows.items() if name != NOBODY}
        clean, worst = accuracy(rows[NOBODY]), min(map(accuracy, met.values()), default=0.0)
        limit = max(worst, clean - self.entries.again * (clean - worst))
        harm = {name: (row["worst_recall"] or 0.0, accuracy(row)) for name, row in met.items()}
        spared = {name for name, (_, left) in harm.items() if left > limit and harm[name] > min(harm.values())}
        return [name for name in rows if name not in spared]

    def cells(self) -> list[Cell]:
        """List the cells that are known by now."""
        return [cell for panel in self.panels() for rule in self.entries.rules for cell in self.of(rule, panel)[0]]

    def twins(self, share: float) -> list[Cell]:
        """List the twins of a drawn share of the cells of the first seed that have been played."""
        first = [cell for cell in self.cells() if cell.seed == self.seeds[0] and _result(self.row(cell)) is not None]
        return [self.cell(place, self.seeds[0], NUMBER) for place in drawn((cell.labels for cell in first), share)]

    def points(self, labels: Place, seed: int, twin: int | None = None) -> float | None:
        """Give the accuracy of a cell's run, or of its twin, in percent; None also of one that was refused."""
        row = _result(self.row(self.cell(labels, seed, twin)))
        return None if row is None else 100 * accuracy(row)

    @property
    def size(self) -> int:
        """How many cells there will be at most."""
        known = [self.of(rule, panel) for panel in self.panels() for rule in self.entries.rules]
        return sum(len(cells) + following for cells, following in known)

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Leave out what is known.

        Seed by seed, so that an unfinished tournament is a fair one, and in each by key, as if drawn: slow runs come
        among fast ones, so that the time left can be told.
        """
        return sorted(super().missing(cells), key=lambda cell: (self.entries.seeds.index(cell.seed), self.key(cell)))

    def play(self, cells: Sequence[Cell], runner: Runner, version: str) -> Iterator[Record | None]:
        """Train cells, several at a time.

        Args:
            cells: Which ones, in this order.
            runner: Trains them.
            version: Version of the code that trains them.

        Yields:
            Each result as it comes, that of a run that `FAILED` with the error's "trace"; None for one that another
            process is busy with or has finished.
        """
        self.store.begin()
        taken: dict[Cell, BaseFileLock] = {}
        left: list[Cell] = []

        def calls() -> Iterator[tuple[Cell, Path]]:
            for cell in cells:
                lock = self._take(cell)
                if lock is None:
                    left.append(cell)
                else:
                    taken[cell] = lock
                    yield cell, self.folder

        try:
            for cell, row in runner.each(_played, calls(), lost=_killed):
                if row["status"] == "interrupted" and runner.on is None:  # by a signal, which is meant for all
                    raise KeyboardInterrupt(row["reason"])
                stopped = row.pop("stopped", None)
                if row["status"] not in ("interrupted", FAILED):
                    self.add(cell, {"version": version} | row)
                store.free(taken.pop(cell))
                if stopped and runner.on is None:  # in its last round
                    raise KeyboardInterrupt(f"stopped by {stopped}")
                yield row | cell.labels._asdict() if row["status"] == FAILED else self.row(cell)
        finally:
            for lock in taken.values():
                store.free(lock)
        self.refresh()
        yield from (self.row(cell) for cell in left)

    def _take(self, cell: Cell) -> BaseFileLock | None:
        """Claim a cell; None if another process plays it or has played it."""
        lock = self.store.claim(self.key(cell))
        self.refresh()
        if lock is not None and self.row(cell) is not None:
            store.free(lock)
            return None
        return lock


def best(found: Mapping[_Choice, Mapping[str, float]], cost: float | None) -> _Choice:
    """Choose a setting, such as a rate; of equal ones the first.

    Args:
        found: Accuracies on validation samples, in [0, 1], by setting and attack.
        cost: See `Entries`.

    >>> found = {0.1: {"none": 0.90, "ipm": 0.60}, 0.2: {"none": 0.91, "ipm": 0.50}, 0.01: {"none": 0.70, "ipm": 0.65}}
    >>> best(found, None), best(found, 0.01), best(found, 1.0)
    (0.1, 0.1, 0.01)
    """
    if cost is None:
        return max(found, key=lambda one: sum(found[one].values()))
    near = cheap({one: by_attack.get(NOBODY, 0.0) for one, by_attack in found.items()}, cost)
    return max(near, key=lambda one: min(found[one].values(), default=0.0))


def cheap(clean: Mapping[_Choice, float], cost: float) -> list[_Choice]:
    """List the settings at which the accuracy where nobody attacks is at most ``cost`` below the best.

    >>> cheap({0.01: 0.7, 0.1: 0.9, 0.2: 0.91}, 0.01)
    [0.1, 0.2]
    """
    least = max(clean.values()) - cost - 1e-9
    return [one for one, accuracy in clean.items() if accuracy >= least]


def _without_beside(overrides: Iterable[str]) -> list[str]:
    return [override for override in overrides if not beside(override)]


def _possible(cell: Cell) -> tuple[Cell, str | None]:
    """Check everything about a run but train it; give the reason if it cannot be."""
    from lightning_fl.run.assemble import check_together, make_data, make_module, make_trainer
    from lightning_fl.run.fit import silence

    try:
        config = checked(cell.command)
        with silence():
            check_together(make_module(config), make_data(config), make_trainer(config, Path(), []))
    except (DataError, MissingError):
        raise
    except SettingError as error:
        return cell, said(error)
    return cell, None


def _played(cell: Cell, folder: Path) -> tuple[Cell, Record]:
    """Train a cell, or find what an equal run has measured."""
    return cell, result(cell.command, folder, cell.title)


def _killed(cell: Cell, folder: Path) -> tuple[Cell, Record]:
    reason = "its process was killed, as happens where memory runs out, which fewer --workers may help"
    return cell, {"status": FAILED, "reason": reason, "trace": f"{cell.title}: {reason}"}


def _result(row: Record | None) -> Record | None:
    return None if row is None or row["status"] == "refused" else row


def result(overrides: Sequence[str], folder: Path = Path(), title: str | None = None) -> Record:
    """Train a run and take from it what a tournament shows; what an equal run has measured is taken over.

    Args:
        overrides: Overrides as for train.py.
        folder: The tournament's: has ``cells.csv``, and loggers write there, if there are any.
        title: What loggers call it.

    Returns:
        Accuracies and recall in [0, 1], null where the run diverged, and what told it to stop, if something did; a run
        that cannot be, such as a rule that needs more clients, is "refused"; one in which a rule or an attack raises
        something else has "failed".

    Raises:
        DataError: If the data cannot be read, which no other run could either.
        MissingError: If this machine lacks something, which says nothing about the run.
    """
    from lightning_fl.callback.graceful_stop import GracefulStop
    from lightning_fl.run.fit import fit_in_memory

    settle_threads()
    stop, name = GracefulStop(), ""
    try:
        config = checked(overrides)
        name = identity(config)
        equal = store.find([folder / "cells.csv", *TABLES.glob("tournament_*.csv")], STORED, [name])
        if equal:
            return equal[name]
        config.run_dir, config.run_name = str(folder / name), title
        config.run_group = config.run_group or folder.name
        summary, rows = fit_in_memory(config, stop)
    except (DataError, MissingError):
        raise
    except SettingError as error:
        return {"status": "refused", "reason": said(error), "identity": name}
    except Exception as error:  # of somebody's own rule: it costs this run alone
        trace = format_exc()[-20_000:]
        return {"status": FAILED, "reason": said(error, named=True), "trace": trace}
    times = [row["seconds/aggregator"] for row in rows if "seconds/aggregator" in row]  # nobody may have been drawn
    return {
        "identity": name,
        "status": summary["status"],
        "stopped": stop.received,
        "reason": summary["reason"],
        "accuracy": summary["accuracy"],
        "worst_recall": least_recall(summary["recall"]),
        "validation_accuracy": summary["validation_accuracy"],
        "kappa": summary["robustness"]["mean"],
        "rule_ms": 1e3 * mean(times) if times else None,
        "seconds": summary["seconds"],
        "classes": summary["n_classes"],
        "success": (summary.get("attack") or {}).get("success_rate"),
    }


def accuracy(row: Record) -> float:
    """Tell a run's accuracy, in [0, 1]; a diverged run has that of guessing, 1 / c."""
    return float(row["accuracy"]) if row["accuracy"] is not None else 1 / (row["classes"] or 10)


def keep(tournament: Tournament) -> Path:
    """Merge the finished cells of this tournament, and their twins, into scripts/tables."""
    tournament.refresh()
    cells = [*tournament.tuning(), *tournament.cells(), *tournament.twins(1.0)]
    rows = [row for cell in cells if (row := tournament.row(cell)) is not None]
    return tournament.keep(tournament.kept, FIELDS, tournament.own([*rows, *tournament.impossible.values()]))
