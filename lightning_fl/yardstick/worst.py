"""How far a rule can be moved, whoever wrote it: the worst rows that a frozen ensemble of attacks finds.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772: a rule is (f, kappa)-robust if its
squared distance from the mean of any n - f rows never exceeds kappa times their variance.  What is measured here is a
lower bound of the least such kappa.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.arguments import settings
from lightning_fl.errors import SettingError, check_whole, shown
from lightning_fl.tables import table
from lightning_fl.text import many, plain
from lightning_fl.theory.robustness import least_kappa
from lightning_fl.updates.rows import check_rows
from lightning_fl.yardstick.attacks import MEMBERS, NAME, UNBOUNDED
from lightning_fl.yardstick.box import DRAWS, ClosedBox, Rule, Spent
from lightning_fl.yardstick.honest import FAMILIES, drawn

BUDGET = 1000
_SHOWN = 8


@dataclass(frozen=True)
class Worst:
    """What the ensemble found; prints as a table.

    Args:
        rule: The rule in words.
        n: Rows in all.
        f: Forged ones.
        d: Their length.
        kappa: ||R(x) - mean||^2 over (1/h) sum_i ||x_i - mean||^2, mean that of the h honest rows; of a rule that
            draws, the mean over 4 draws, the same at every question.
        member: What found it.
        rows: (f, d) the forged rows.
        answer: (d,) what the rule makes of them and the honest rows; of a rule that draws, the mean over the draws.
        honest: (h, d) these.
        asked: How often the rule was asked.
        proven: The bound that its authors have proven, where it is one of this library's and has one.
        members: The largest kappa of each member that asked, largest first.
        notes: What else the rule did: raised an error, answered NaN, drew at random, remembered.
        ensemble: The attacks' common name.
    """

    rule: str
    n: int
    f: int
    d: int
    kappa: float
    member: str
    rows: Float[Tensor, "f d"]
    answer: Float[Tensor, " d"]
    honest: Float[Tensor, "h d"]
    asked: int
    proven: float | None
    members: Mapping[str, float]
    notes: tuple[str, ...]
    ensemble: str = NAME

    @property
    def least(self) -> float | None:
        """The kappa that no rule is below, f / (n - 2f); None where half of the rows or more are forged."""
        return least_kappa(self.n, self.f).value

    def __str__(self) -> str:
        best = list(self.members.items())[:_SHOWN]
        return "\n".join(
            [
                f"{self.ensemble} against {self.rule}: n = {self.n}, f = {self.f}, d = {self.d:,}",
                f"  kappa {_said(self.kappa)} by {self.member}, {many(self.asked, 'question')}; {_bounds(self)}",
                table(["member", "kappa"], [[name, _said(kappa)] for name, kappa in best]),
                *(f"  {note}" for note in self.notes),
            ]
        )


@dataclass(frozen=True)
class Kappa:
    """The largest kappa over families of honest rows; prints as a table.

    Args:
        families: What was found on each, by its name; see `lightning_fl.yardstick.honest`.
    """

    families: Mapping[str, Worst]

    @property
    def worst(self) -> Worst:
        """The family with the largest kappa."""
        return max(self.families.values(), key=lambda found: found.kappa)

    @property
    def kappa(self) -> float:
        """That kappa."""
        return self.worst.kappa

    def __str__(self) -> str:
        first = self.worst
        notes = dict.fromkeys(note for found in self.families.values() for note in found.notes)
        rows = [[name, _said(found.kappa), found.member] for name, found in self.families.items()]
        return "\n".join(
            [
                f"{first.ensemble} against {first.rule}: n = {first.n}, f = {first.f}, d = {first.d:,}",
                f"  kappa {_said(self.kappa)}; {_bounds(first)}",
                table(["honest rows", "kappa", "found by"], rows),
                *(f"  {note}" for note in notes),
            ]
        )


def worst(rule: Rule, honest: Any, f: int, *, seed: int = 0, budget: int = BUDGET) -> Worst:
    """Search for the f forged rows that move a rule farthest from the mean of the honest ones.

    The rule is a closed box: any callable that makes a vector (d,) of a matrix (n, d), honest rows first.  Each call is
    a first round (a fresh copy of the object where it can be copied), and what draws from the global generators draws
    the same each time.  Give a rule with other needs as a function: ``lambda rows: rule(rows, server)``.

    Args:
        rule: Any rule: of this library, of another one, or a function.
        honest: (h, d) the honest rows, of torch or NumPy, finite.
        f: How many rows are forged, at least 1.
        seed: Seed of what the attacks draw.
        budget: How often to ask the rule at most.  The literature's attacks and searches take about 400
            questions; a walk from the worst rows takes the rest.

    Returns:
        The worst rows, what they do, and who found them.

    Raises:
        SettingError: If the honest rows or f are out of range, or the rule fails on ordinary rows.

    The farthest that one of five can take a median of scalars: to the next order statistic, 1 from the honest mean.

    >>> found = worst(lambda x: x.median(0).values, torch.tensor([[0.0], [1.0], [2.0], [3.0]]), f=1, budget=400)
    >>> found.kappa  # 0.5^2 over the variance 1.25
    0.2
    """
    check_whole("f", f, 1)
    check_whole("budget", budget, 1)
    if isinstance(rule, type) or not callable(rule):
        raise SettingError(f"worst needs a rule to call, such as fl.aggregator.Krum(f={f}), got {shown(rule)}.")
    given = torch.as_tensor(honest) if isinstance(honest, np.ndarray) else honest
    check_rows(given, "honest")
    if given.dtype == torch.float16:  # the attacks send 1e12
        raise SettingError("worst needs honest rows of float32 or float64, got float16; give honest.float().")
    if len(given) < 2 or not given.isfinite().all():
        raise SettingError("worst needs at least 2 honest rows, all finite, got others; leave out rows of NaN and inf.")
    box = ClosedBox(rule, honest, f, budget)
    notes = []
    for name, member in MEMBERS.items():
        box.member = name
        try:
            member(box, seed)
        except SettingError:  # an attack that such honest rows do not suit
            continue
        except Spent:
            break
    if box.draws:
        notes.append(f"draws at random: each kappa is the mean over the same {DRAWS} draws")
    if box.has_memory:
        notes.append("remembers earlier rounds: asked as in its first one")
    if not box.repeats:
        notes.append("answers the same rows differently, whatever is seeded: another search will find other numbers")
    notes += [f"{failure} (first: {name})" for failure, name in box.failures.items()]
    if left := len(MEMBERS) - 1 - [*MEMBERS].index(box.member):
        spent = f"the budget of {many(budget, 'question')} ended in {box.member}"
        notes.append(f"{spent}, before {many(left, 'member')}")
    ranked = box.ranked()
    if not ranked:
        raise SettingError(f"worst needs a rule that answers, got one that {'; '.join(box.failures)}.")
    (member_name, found), n = ranked[0], len(given) + f
    return Worst(
        rule=_named(rule),
        n=n,
        f=f,
        d=given.shape[1],
        kappa=found.kappa,
        member=member_name,
        rows=found.rows,
        answer=found.answer,
        honest=box.honest.rows,
        asked=budget - box.left,
        proven=rule.kappa(n, f, True) if isinstance(rule, Aggregator) else None,
        members={name: each.kappa for name, each in ranked},
        notes=tuple(notes),
    )


def kappa(rule: Rule, n: int, f: int, d: int, *, seed: int = 0, budget: int = BUDGET) -> Kappa:
    """Search for the worst of a rule over drawn families of honest rows; see `worst`.

    Args:
        rule: Any rule.
        n: Rows in all.
        f: How many of them are forged, at least 1, n - f at least 2.
        d: Their length.
        seed: Seed of honest rows and attacks.
        budget: How often to ask the rule at most on each family.

    Raises:
        SettingError: See `worst`.
    """
    check_whole("f", f, 1)
    check_whole("n", n, 1)
    if n < f + 2:
        raise SettingError(f"a search needs n >= f + 2 rows, of which f are forged, got n={n} and f={f}; lower f.")
    check_whole("d", d, 1)
    return Kappa({name: worst(rule, drawn(name, n - f, f, d, seed), f, seed=seed, budget=budget) for name in FAMILIES})


def _named(rule: Rule) -> str:
    if isinstance(rule, Aggregator):
        return settings(rule)
    return plain(getattr(rule, "__name__", type(rule).__name__))


def _said(kappa: float) -> str:
    return f"{kappa:.4g}" if kappa < UNBOUNDED else f"unbounded ({kappa:.0e})" if isfinite(kappa) else "unbounded"


def _bounds(found: Worst) -> str:
    least = "half of the rows are forged: no rule has a bound"
    if found.least is not None:
        least = f"no rule is below {found.least:.4g} on all rows"
    return least if found.proven is None else f"proven: at most {found.proven:.4g}; {least}"
