"""Whom each rule would have trusted, who stands out, and what a lie would have changed, round by round."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from statistics import fmean, median

import torch
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator, aggregated
from lightning_fl.audit.kept import KeptRound
from lightning_fl.errors import SettingError
from lightning_fl.module import begin_anew
from lightning_fl.round import Round
from lightning_fl.server_oracle import GivenServer, ServerOracle
from lightning_fl.tables import table
from lightning_fl.updates.rows import which_finite
from lightning_fl.updates.updates import Updates

APART = 2.0
"""From which distance on, as a multiple of the usual one, a client stands out."""
_LIED_IN = 10  # rounds in which lies are tried, spread over the run
Row = dict[str, float]


@dataclass
class Audit:
    """What the rounds of a run tell; prints as a table.

    Args:
        apart: Each client's median distance to the others whose updates are finite, over the usual one of the round;
            the median over rounds; inf where it sent NaN or inf in most.
        weights: For each rule, rows as in a run's ``weights.csv``: the round, and what each client would have weighed.
        moved: For each rule and client, how far the answer would have moved in a round had the client told the worst of
            three lies, in units of the updates' spread; the mean over those of at most 10 rounds that it took part in.
        skipped: Why a rule was left out, by its name.
    """

    apart: dict[int, float] = field(default_factory=dict)
    weights: dict[str, list[Row]] = field(default_factory=dict)
    moved: dict[str, dict[int, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def trust(self, rule: str, client: int) -> float | None:
        """A client's mean weight in units of an equal share; None where the rule weighs nobody, or not this client."""
        shares = [row[str(client)] * (len(row) - 1) for row in self.weights.get(rule, []) if str(client) in row]
        return sum(shares) / len(shares) if shares else None

    @property
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header and one row for each client."""
        header = ["client", "apart", *self.weights, *(f"{rule}: a lie moves" for rule in self.moved)]
        lines = []
        for client, apart in sorted(self.apart.items()):
            shares = [self.trust(rule, client) for rule in self.weights]
            lies = [self.moved[rule].get(client) for rule in self.moved]
            numbers = ["–" if x is None else f"{x:.2f}" for x in [apart, *shares, *lies]]
            lines.append([f"{client}{' !' * (apart >= APART)}", *numbers])
        return header, lines

    def __str__(self) -> str:
        return "\n".join([table(*self.cells), *self.notes])

    @property
    def notes(self) -> list[str]:
        """What the columns mean, and what is missing."""
        return [
            f"apart: distance to the others over the usual one, ! from {APART:g} on; a rule's column: mean weight in "
            f"equal shares; a lie moves: how far, in spreads of the updates.",
            *(f"{rule} left out: {why}" for rule, why in self.skipped.items()),
        ]


def audited(rounds: Iterable[KeptRound], rules: Mapping[str, Aggregator]) -> Audit:
    """Ask rules about rounds that were kept.

    Args:
        rounds: The rounds, in order.
        rules: The rules by name.  Where rounds kept inner products alone, those that go by these alone (they move
            with rotations, and remember nothing) and need neither the server nor the model.  They are copied, and
            begin anew.
    """
    everything, rules = list(rounds), {name: deepcopy(rule) for name, rule in rules.items()}
    for rule in rules.values():
        begin_anew(rule)
    found, distances = Audit(), defaultdict[int, list[float]](list)
    moves = {name: defaultdict[int, list[float]](list) for name in rules}
    every = max(1, -(-len(everything) // _LIED_IN))
    for at, one in enumerate(everything):
        for client, apart in zip(one.ids, _apart(one.updates), strict=True):
            distances[client].append(apart)
        for name, rule in rules.items():
            if name not in found.skipped:
                try:
                    moved = _ask(found, name, rule, one, lies=at % every == 0)
                    for client, far in moved.items():
                        moves[name][client].append(far)
                except SettingError as error:
                    found.skipped[name] = f"round {one.number}: {error}"
    found.apart = {client: median(apart) for client, apart in distances.items()}
    found.moved = {name: {client: fmean(far) for client, far in by.items()} for name, by in moves.items() if by}
    return found


def _apart(updates: Updates) -> list[float]:
    """Each row's median distance to the other finite rows over the median of these; inf for one that is not finite."""
    fine = [i for i, finite in enumerate(which_finite(updates.rows)) if finite]
    distances = updates.distances.sqrt()[fine][:, fine].tolist()
    own = [median([*row[:i], *row[i + 1 :]] or [0.0]) for i, row in enumerate(distances)]
    usual = median(own or [0.0])
    found = dict(zip(fine, (x / usual if usual > 0 else float(x > 0) for x in own), strict=True))
    return [found.get(i, inf) for i in range(updates.n)]


def _ask(found: Audit, name: str, rule: Aggregator, one: KeptRound, lies: bool) -> dict[int, float]:
    """Note whom a rule would have trusted; with ``lies`` give how far each client's would have moved the answer."""
    if rule.needs_server or rule.needs_model or rule.needs_layout:
        raise SettingError(f"{name} needs the server, its model or its layers, got a record of updates.")
    if not one.whole and "rotation" not in rule.moves_with:
        raise SettingError(f'{name} needs the updates, got inner products; run with keep="updates".')
    if not one.whole and rule.remembers:
        raise SettingError(f'{name} remembers updates, got inner products; run with keep="updates".')
    updates, server = one.updates, GivenServer(None)
    server.round = Round(one.number - 1, 1.0, 0)
    rule.check(updates.n, 1)
    aggregation = aggregated(rule, updates, server)
    if aggregation.trusted is not None:
        weights = dict(zip(map(str, one.ids), aggregation.trusted.tolist(), strict=True))
        found.weights.setdefault(name, []).append({"round": float(one.number), **weights})
    moved = {client: _moved(rule, server, updates, aggregation.update, i) for i, client in enumerate(one.ids) if lies}
    if rule.remembers:
        if lies:
            aggregated(rule, updates, server)  # what it takes over is its last answer
        rule.end_round(one.number - 1)
    return {client: far for client, far in moved.items() if far is not None}


def _moved(rule: Aggregator, server: ServerOracle, updates: Updates, answer: Tensor, i: int) -> float | None:
    """How far the worst of three lies of one client moves the answer: against the others' mean, nothing, far ahead.

    None where the others have no spread.
    """
    others = torch.tensor([fine and k != i for k, fine in enumerate(which_finite(updates.rows))])
    if not others.any():
        return None
    rows = updates.rows[others]
    mean = rows.mean(0)
    spread = (rows - mean).square().sum(1).mean().sqrt()
    if not spread > 0:
        return None
    moves = []
    for lie in (-10 * mean, torch.zeros_like(mean), mean + 10 * (rows[0] - mean)):
        changed = updates.rows.clone()
        changed[i] = lie
        told = aggregated(rule, Updates(changed, updates.data_weights, updates.ids), server).update
        moves.append(((told - answer).norm() / spread).item())
    return max(moves)
