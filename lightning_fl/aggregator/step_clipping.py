"""Clipping by the last step: a rule on differences from the last answer, no longer than the model's movement allows.

Grigory Malinovsky, Peter Richtarik, Samuel Horvath, Eduard Gorbunov. Byzantine Robustness and Partial Participation Can
Be Achieved at Once: Just Clip Gradient Differences. NeurIPS 2024. arXiv:2311.14127, equation 10.
"""

from dataclasses import replace

import torch

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.remembering import RememberingWrapper
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.deviation import squares_about
from lightning_fl.updates.updates import Updates


class StepClipping(RememberingWrapper):
    """Answer g_t = g_{t-1} + Rule(clip(x_i - g_{t-1}, L_t)), L_t = lambda ||w_t - w_{t-1}||.

    So ||g_t - g_{t-1}|| <= L_t for a rule that answers within the hull of its rows, even in a round whose attackers are
    the majority.  w_t is the global model, and clip(v, L) = v min(1, L / ||v||).

    Args:
        rule: The rule.
        factor: lambda, > 0, from a length of models to one of updates: a smoothness constant.  The paper tunes it over
            0.1, 1 and 10.

    Note:
        The paper leaves open the first round, in which nothing is clipped here, and steps of length 0, after which the
        last positive L stays, as g would for ever.
    """

    needs_model = True

    def __init__(self, rule: Aggregator, factor: PositiveFloat = 1.0):
        super().__init__(rule)
        self.factor = factor

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        known, model = self._remembered, server.parameters.clone()
        before, limit = known.get("answer"), known.get("limit")
        if before is None:
            found = aggregated(self.rule, updates, server)
            answer = found.update
        else:
            step = torch.linalg.vector_norm(model - known["model"].to(model), dtype=torch.float64)
            if step > 0:
                limit = self.factor * step
            found = aggregated(self.rule, self._differences(updates, before.to(updates.device), limit), server)
            answer = before.to(found.update) + found.update
        self._last = {"answer": answer.clone(), "model": model, "limit": limit}
        return replace(found, answer=answer, weights=None, trust=found.trusted)

    def _differences(self, updates: Updates, answer: torch.Tensor, limit: torch.Tensor | None) -> Updates:
        """The clipped differences, in the columns that are here."""
        updates = updates.whole
        rows = updates.here - updates.held.own(answer)
        if limit is not None:
            away = squares_about(updates, answer).sqrt()
            rows *= clipping_scales(away, limit.to(away)).to(rows)[:, None]
        return Updates(rows, updates.data_weights, updates.ids, updates.held, updates.layout)
