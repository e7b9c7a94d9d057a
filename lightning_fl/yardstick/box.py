"""A rule as a closed box: rows go in, a vector comes out, and nothing else is known of it."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.errors import SettingError
from lightning_fl.metric.robustness import measured_kappa
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.text import plain, said
from lightning_fl.updates.updates import Updates

Rule = Callable[[Any], Any]
DRAWS = 4
"""Draws of a rule that draws at random, the same at every question: worse rows are not just luckier ones."""


class Spent(Exception):  # noqa: N818  (no error: the search has had its questions)
    """All questions have been asked."""


@dataclass(frozen=True)
class Found:
    """Forged rows and what they do.

    Args:
        kappa: Squared distance of the answer from the honest mean over the honest variance; of a rule that draws, the
            mean over its draws.
        rows: (f, d) what the Byzantine clients send.
        answer: (d,) what the rule makes of them and the honest rows; of a rule that draws, the mean over its draws.
    """

    kappa: float
    rows: Float[Tensor, "f d"]
    answer: Float[Tensor, " d"]


class ClosedBox(Aggregator):
    """Ask a rule about forged rows beside the same honest ones, and keep the worst that anybody has asked about.

    An attack that asks the server's rule may be given the box in its place; every question counts.  The rule gets rows
    of its own in each call, in a fresh copy of the object that was given, which stays as it is; the global generators
    of Python, NumPy and torch are seeded before, and put back after, each call.

    Args:
        rule: Any callable (n, d) -> (d,), of torch or NumPy; one of this library's is asked for its first round.
        honest: (h, d) the honest rows.  NumPy's are given to the rule as NumPy's, unless it takes only torch's, and
            the other way round.
        f: How many rows are forged.
        budget: How often the rule may be asked.

    Raises:
        SettingError: If the rule fails on honest rows alone.
    """

    robust = False

    def __init__(self, rule: Rule, honest: Any, f: int, budget: int):
        self.honest = Updates(torch.as_tensor(honest))
        self.f, self.left = f, budget
        self.mean, self.std = self.honest.mean_and_std
        self.found: dict[str, Found] = {}
        """The worst rows of each member of the ensemble."""
        self.failures: dict[str, str] = {}
        """What else the rule did, by what led to it first."""
        self.member = "trial"
        self._rule, self._numpy = rule, isinstance(honest, np.ndarray)
        self._meet()

    def _meet(self) -> None:
        """Find out what the rule takes, and whether its answers to the same rows are the same."""
        rows = self.mean + 3 * self.std * torch.linspace(-1, 1, self.f, dtype=self.honest.dtype)[:, None].to(self.mean)
        try:
            first = self._answer(rows, 0)
        except Exception as error:
            self._numpy = not self._numpy
            try:
                first = self._answer(rows, 0)
            except Exception as again:
                if ours := [each for each in (error, again) if isinstance(each, SettingError)]:
                    raise ours[0] from None  # a rule of ours says itself what does not fit
                raise SettingError(
                    f"worst needs a rule that makes a vector (d,) of a matrix (n, d), got {_said(error)} from "
                    f"({self.honest.n + self.f}, {self.honest.d}) rows; wrap it: worst(lambda rows: ..., ...)."
                ) from error
        self.repeats = _same(first, self._answer(rows, 0))
        """Whether the same rows have the same answer, draws aside."""
        self.draws = self.repeats and not _same(first, self._answer(rows, 1))
        """Whether the rule draws at random."""
        rule = self._fresh()
        self.has_memory = not _same(self._answer(rows, 0, rule), self._answer(rows, 0, rule))
        """Whether an earlier call changes a later one's answer."""

    def _fresh(self) -> Rule:
        if not isinstance(self._rule, Aggregator):  # one of ours is in its first round at every call
            with suppress(Exception):  # what cannot be copied is asked itself
                return deepcopy(self._rule)
        return self._rule

    def _answer(self, forged: Tensor, draw: int, rule: Rule | None = None) -> Float[Tensor, " d"]:
        rule, rows = rule or self._fresh(), torch.cat([self.honest.rows, forged])
        given: Any = rows.numpy() if self._numpy else rows
        with _seeded(draw, rows.device):
            answer: Any = rule(given, seed=draw) if isinstance(rule, Aggregator) else rule(given)
        if answer is None or (shape := tuple(np.shape(answer))) != (self.honest.d,):
            raise TypeError("the answer None" if answer is None else f"an answer of shape {shape}")
        vector = answer.detach() if isinstance(answer, Tensor) else torch.tensor(np.asarray(answer))
        return vector.to(self.mean, copy=True)

    def ask(self, forged: Float[Tensor, "f d"]) -> Found:
        """Ask the rule about forged rows, and keep them if they are the worst of this member.

        Returns:
            Them and what they do; no harm where the rule raises, or makes NaN of NaN, which is noted by itself.

        Raises:
            Spent: If no question is left.
        """
        if not self.left:
            raise Spent
        self.left -= 1
        try:
            answers = [self._answer(forged, draw) for draw in range(DRAWS if self.draws else 1)]
        except Exception as error:
            self.failures.setdefault(f"raises {_said(error)}", self.member)
            return Found(0.0, forged, self.mean)
        answer = torch.stack(answers).mean(0)
        if not answer.isfinite().all() and not forged.isfinite().all():
            self.failures.setdefault("answers NaN or inf to rows of NaN or inf", self.member)
            return Found(0.0, forged, answer)
        found = Found(sum(map(self._kappa, answers)) / len(answers), forged, answer)
        if self.member not in self.found or found.kappa > self.found[self.member].kappa:
            self.found[self.member] = Found(found.kappa, forged.clone(), answer)
        return found

    def _kappa(self, answer: Float[Tensor, " d"]) -> float:
        """Measure how far an answer is from the honest mean; infinitely far if it is not finite."""
        return measured_kappa(self.honest, answer, self.honest.n) if answer.isfinite().all() else inf

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Ask about the rows behind the honest ones; see the base class."""
        return Aggregation(self.ask(updates.whole.rows[self.honest.n :]).answer)

    def ranked(self) -> list[tuple[str, Found]]:
        """The members and the worst that each found, the worst first."""
        return sorted(self.found.items(), key=lambda item: -item[1].kappa)


def _said(error: Exception) -> str:
    text = plain(said(error, named=True))
    return f"{text[:120]}{'…' * (len(text) > 120)}"


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(), b.nan_to_num())


@contextmanager
def _seeded(draw: int, device: torch.device) -> Iterator[None]:
    """Let what draws from the global generators draw the same each time."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([] if device.type == "cpu" else None, device_type=device.type):
        (torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed)(draw)  # the latter is slow
        np.random.seed(draw)
        random.seed(draw)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
