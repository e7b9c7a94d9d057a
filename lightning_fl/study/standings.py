"""The standings of a tournament: what each rule costs without an attack, and what is left under the worst one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import mean

import numpy as np

from lightning_fl.study.store import Record
from lightning_fl.study.tournament import NOBODY, Panel, Setting, Tournament, accuracy

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its bootstrap interval.

    Args:
        mean: Over seeds.
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate | None":
        """Estimate from one value per seed; None of no values.

        The interval is the percentile bootstrap's: of few values all resamples, else 10,000 drawn ones.  Of three
        values it reaches from the least to the largest, since 1 in 27 resamples holds one value only.

        >>> Estimate.of([1.0, 2.0, 3.0])
        Estimate(mean=2.0, low=1.0, high=3.0)
        """
        if not values:
            return None
        n = len(values)
        if n**n <= _RESAMPLES:
            drawn = np.array(list(product(values, repeat=n)))
        else:
            drawn = np.random.default_rng(0).choice(np.array(values), (_RESAMPLES, n))
        # An end that leaves at most 2.5 % of the resamples beyond it.
        means = drawn.mean(1).round(12)  # the mean of equal values is that value
        low = np.quantile(means, 0.025, method="lower")
        high = np.quantile(means, 0.975, method="higher")
        return cls(mean(values), float(low), float(high))

    def text(self) -> str:
        """Write the mean and the interval, in percent.

        >>> Estimate(0.5, 0.25, 0.75).text(), Estimate(0.5, 0.5, 0.5).text()
        ('50.0 [25.0, 75.0]', '50.0')
        """
        interval = "" if self.low == self.high else f" [{100 * self.low:.1f}, {100 * self.high:.1f}]"
        return f"{100 * self.mean:.1f}{interval}"


@dataclass(frozen=True)
class Standing:
    """One rule at one degree of skew.

    Args:
        rule: Its label.
        setting: The server's rate that was chosen for it, and its radius; None: not yet.
        played: How many of the `planned` runs are finished.
        planned: Runs over attacks, none included, and seeds: all that there may be, as long as they are not known.
        clean: Accuracy without an attack.
        worst: Accuracy under the worst attack, over the seeds in which every attack of theirs has been played.
        worst_recall: Recall of the least recognised class, under the attack that hurts it most.
        attack: The attack with the least mean accuracy, of those played at all of these seeds.
        kappa: Largest mean over rounds and seeds of the measured kappa, over attacks.
        rule_ms: Mean time of the rule per round, in milliseconds.
        refused: Why the rule cannot be run.
        left_out: Attacks that cannot be run against it, at any seed or at those that are named, and why; `worst` is
            over the others.
        clean_by_seed: What `clean` is estimated from.
        worst_by_seed: What `worst` is estimated from.
        success: Largest success rate of a backdoor, over attacks, of those that say one, in the mean over seeds.
        rank: 1 plus the number of rules whose `worst` is better at every seed, as seeds share their data; None: not
            measured.
        dominated_by: Rules that are at least as good in clean and worst accuracy at every seed, under no fewer attacks,
            and better in one.
    """

    rule: str
    setting: Setting | None
    played: int
    planned: int
    clean: Estimate | None = None
    worst: Estimate | None = None
    worst_recall: Estimate | None = None
    attack: str | None = None
    kappa: float | None = None
    rule_ms: float | None = None
    refused: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    clean_by_seed: Mapping[int, float] = field(default_factory=dict)
    worst_by_seed: Mapping[int, float] = field(default_factory=dict)
    success: float | None = None
    rank: int | None = None
    dominated_by: tuple[str, ...] = ()


def standings(tournament: Tournament, panel: Panel) -> list[Standing]:
    """Rank the rules of one panel, the best first."""
    found = [_standing(tournament, rule, panel) for rule in tournament.entries.rules]
    ranked = [
        replace(one, rank=_rank(one, found), dominated_by=tuple(o.rule for o in found if _dominates(o, one)))
        for one in found
    ]
    return sorted(ranked, key=lambda one: (one.worst is None, -(one.worst.mean if one.worst else 0), one.rule))


def _standing(tournament: Tournament, rule: str, panel: Panel) -> Standing:
    cells, following = tournament.of(rule, panel)
    known = {(cell.labels.attack, cell.seed): row for cell in cells if (row := tournament.row(cell)) is not None}
    begun = Standing(rule, tournament.setting(rule, panel), played=len(known), planned=len(cells) + following)
    rows = {place: row for place, row in known.items() if row["status"] != "refused"}
    reasons = _reasons(tournament, panel, known)
    never = reasons.keys() - {attack for attack, _ in rows}
    if NOBODY in never:
        return replace(begun, refused=reasons[NOBODY])
    left_out = {}
    for attack, reason in reasons.items():
        seeds = [str(seed) for a, seed in known if a == attack and (a, seed) not in rows]
        left_out[attack] = reason if attack in never or not seeds else f"{reason} (seed {', '.join(seeds)})"
    left_out.pop(NOBODY, None)

    attacks: dict[int, list[str]] = {}  # by seed, those that can be met there
    for cell in cells:
        if cell.labels.attack not in {NOBODY, *never}:
            attacks.setdefault(cell.seed, []).append(cell.labels.attack)
    whole = [seed for seed, met in attacks.items() if all((attack, seed) in rows for attack in met)]
    clean = {seed: accuracy(row) for (attack, seed), row in rows.items() if attack == NOBODY}
    worst = {seed: min(accuracy(rows[attack, seed]) for attack in attacks[seed]) for seed in whole}
    recalls = [min(rows[attack, seed]["worst_recall"] or 0.0 for attack in attacks[seed]) for seed in whole]
    first = attacks.get(tournament.entries.seeds[0], [])
    everywhere = [attack for attack in first if whole and all((attack, seed) in rows for seed in whole)]
    by_attack = {attack: mean(accuracy(rows[attack, seed]) for seed in whole) for attack in everywhere}

    def largest(name: str) -> float | None:
        """Of an attack's mean over seeds."""
        of_attacks = ([row[name] for (a, _), row in rows.items() if a == attack] for attack in first)
        values = ([value for value in of if value is not None] for of in of_attacks)
        return max((mean(of) for of in values if of), default=None)

    times = [row["rule_ms"] for row in rows.values() if row["rule_ms"] is not None]
    return replace(
        begun,
        clean=Estimate.of([*clean.values()]),
        worst=Estimate.of([*worst.values()]),
        worst_recall=Estimate.of(recalls),
        attack=min(by_attack, key=lambda attack: by_attack[attack], default=None),
        kappa=largest("kappa"),
        rule_ms=mean(times) if times else None,
        left_out=left_out,
        clean_by_seed=clean,
        worst_by_seed=worst,
        success=largest("success"),
    )


def _reasons(tournament: Tournament, panel: Panel, known: Mapping[tuple[str, int], Record]) -> dict[str, str]:
    """Give by attack why it cannot be run, against any rule or at some seed, in the tournament's order."""
    found = {attack: row["reason"] for (attack, b), row in tournament.impossible.items() if b == panel.byzantine}
    found |= {attack: row["reason"] for (attack, _), row in known.items() if row["status"] == "refused"}
    return {attack: str(found[attack]) for attack in tournament.entries.attacks if attack in found}


def _rank(one: Standing, others: Sequence[Standing]) -> int | None:
    if one.worst is None:
        return None
    pairs = [_paired(other.worst_by_seed, one.worst_by_seed) for other in others]
    return 1 + sum(bool(at) and all(theirs > ours for theirs, ours in at) for at in pairs)


def _dominates(other: Standing, one: Standing) -> bool:
    clean = _paired(other.clean_by_seed, one.clean_by_seed)
    worst = _paired(other.worst_by_seed, one.worst_by_seed)
    if not (clean and worst and other.left_out.keys() <= one.left_out.keys()):
        return False
    both = clean + worst
    return all(theirs >= ours for theirs, ours in both) and any(theirs > ours for theirs, ours in both)


def _paired(theirs: Mapping[int, float], ours: Mapping[int, float]) -> list[tuple[float, float]]:
    """Pair two rules' values at the seeds that both have."""
    return [(theirs[seed], ours[seed]) for seed in theirs.keys() & ours.keys()]
