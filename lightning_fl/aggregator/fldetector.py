"""FLDetector: remove clients whose updates are not what their earlier ones and the model's movement predict.

Zaixi Zhang, Xiaoyu Cao, Jinyuan Jia, Neil Zhenqiang Gong. FLDetector: Defending Federated Learning Against Model
Poisoning Attacks via Detecting Malicious Clients. KDD 2022. arXiv:2207.09209.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import log
from numbers import Integral
from typing import Any, Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.remembering import RememberingWrapper, clients_of
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import check_any
from lightning_fl.updates.mixed import mix
from lightning_fl.updates.products import gram_matrix
from lightning_fl.updates.updates import Updates

_REFERENCES, _MOST_CLUSTERS = 10, 7
# Squared distances within clusters of numbers in [0, 1] that rounding alone can make.
_NOTHING = 1e-15
_EQUAL = 1e-12  # scores within this share of the largest are equal: means of shares in float64


def hessian_product(
    moves: Float[Tensor, "m d"], changes: Float[Tensor, "m d"], v: Float[Tensor, " d"]
) -> Float[Tensor, " d"]:
    """Multiply a vector by the Hessian that BFGS finds, started from sigma I and fed the pairs in order.

    Compact L-BFGS: Hv = sigma v - [sigma S, Y] [[sigma S^T S, L], [L^T, -D]]^-1 [sigma S^T v; Y^T v], with D the
    diagonal of S^T Y, L what is below it, and sigma = <s, y> / <s, s> of the newest pair.

    Args:
        moves: S, how the model moved, oldest first; none is zero.
        changes: Y, how the answer changed.
        v: The vector.

    Of one pair H v = y where v = s:

    >>> s, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 1.0]])
    >>> hessian_product(s, y, s[0])
    tensor([2., 1.])
    """
    m = len(moves)
    gram = gram_matrix(moves, changes, v[None])
    inner = gram[:m, m : 2 * m]  # S^T Y
    sigma = inner[-1, -1] / gram[m - 1, m - 1]
    lower = inner.tril(-1)
    system = torch.cat(
        [torch.cat([sigma * gram[:m, :m], lower], dim=1), torch.cat([lower.T, -inner.diagonal().diag()], dim=1)]
    )
    given = torch.cat([sigma * gram[:m, -1], gram[m : 2 * m, -1]])
    found = (torch.linalg.pinv(system, hermitian=True) @ given).to(v)
    return sigma.to(v) * (v - found[:m] @ moves) - found[m:] @ changes


def least_squares_in_runs(values: Float64[Tensor, "... n"], most: int) -> Float64[Tensor, "k ..."]:
    """Compute the least sum of squared distances to k centres, k = 1 to ``most``, exactly, of ascending numbers."""
    zero = values.new_zeros(*values.shape[:-1], 1)
    sums, squares = (torch.cat([zero, powers.cumsum(-1)], dim=-1) for powers in (values, values.square()))
    n = values.shape[-1]
    sizes = (torch.arange(n + 1) - torch.arange(n + 1)[:, None]).clamp(min=1)  # of the run from i to j - 1
    between = sums[..., None, :] - sums[..., :, None]
    cost = (squares[..., None, :] - squares[..., :, None] - between.square() / sizes).clamp(min=0)
    cost = cost + torch.full((n + 1, n + 1), torch.inf).tril(-1)
    best, found = cost[..., 0, :], []
    for _ in range(most):
        found.append(best[..., -1])
        best = (best[..., :, None] + cost).amin(-2)
    return torch.stack(found)


def number_of_clusters(scores: Float64[Tensor, " n"], references: Float64[Tensor, "r n"], most: int) -> int:
    """Count the clusters of the scores by gap statistics.

    With the scores scaled to [0, 1], W_k their least sum of squared distances to k centres and W_k^r that of R sets of
    uniform numbers, gap_k = ln(mean_r W_k^r) - ln W_k, and s_k = sqrt(1 + 1/R) std_r(ln W_k^r): the smallest k with
    gap_k >= gap_{k+1} - s_{k+1}, or W_k = 0; at most ``most``.
    """
    scores = scores.sort().values
    spread = scores[-1] - scores[0]
    if not spread > _EQUAL * scores[-1].abs() or most < 2:
        return 1
    own = least_squares_in_runs((scores - scores[0]) / spread, most).tolist()
    drawn = least_squares_in_runs(references.sort(dim=1).values, most)
    gaps = [
        mean.log().item() - (log(w) if w > _NOTHING else -torch.inf) for mean, w in zip(drawn.mean(1), own, strict=True)
    ]
    errors = ((1 + 1 / drawn.shape[1]) ** 0.5 * drawn.log().std(1, correction=0)).tolist()
    for k in range(1, most):
        if own[k - 1] <= _NOTHING or gaps[k - 1] - gaps[k] + errors[k] >= 0:
            return k
    return most


def malicious(scores: Float64[Tensor, " n"], references: Float64[Tensor, "r n"], most: int | None = None) -> list[int]:
    """Find who is in the cluster of larger mean, if there are several; see `Fldetector`.

    Args:
        scores: Scores of the clients that are judged.
        references: Uniform numbers in [0, 1].
        most: Largest number of clusters that is tried.  None: min(7, n - 1).

    >>> malicious(torch.tensor([0.1, 0.4, 0.1, 0.4, 0.1]).double(), torch.linspace(0, 1, 10).double().view(2, 5))
    [1, 3]
    """
    n = len(scores)
    if number_of_clusters(scores, references, min(_MOST_CLUSTERS, n - 1) if most is None else most) == 1:
        return []
    ordered, order = scores.sort(stable=True)
    splits = [sum(((part - part.mean()) ** 2).sum() for part in (ordered[:k], ordered[k:])) for k in range(1, n)]
    return sorted(order[1 + int(torch.stack(splits).argmin()) :].tolist())  # type: ignore[arg-type]


@contextmanager
def _fewer(rule: Aggregator, removed: int) -> Iterator[None]:
    """Tell a rule, and those inside it, that some of the f are out."""
    told: list[tuple[Any, int]] = []
    while True:
        f = getattr(rule, "f", None)
        if isinstance(f, Integral):
            told.append((rule, int(f)))
        if not isinstance(rule, Wrapper):
            break
        rule = rule.rule
    try:
        for each, f in told:
            each.f = max(f - removed, 0)
        yield
    finally:
        for each, f in told:
            each.f = f


class Fldetector(RememberingWrapper):
    """Ask a rule about the clients that behave as the model's movement predicts (Algorithms 1 to 3).

    Of each client the update x_i is predicted as its last one plus H (w_t - w_then), H the Hessian by L-BFGS from the
    last ``window`` movements of the model and changes of the rule's answer.  A client's score is the mean of its last
    ``window`` shares e_i / sum_j e_j of the errors e_i = ||predicted - x_i||, which are equal where only rounding
    tells them apart.  Where gap statistics see several
    clusters of scores, those of the upper of two clusters are taken for malicious.

    Args:
        rule: The rule that aggregates the others' updates, with an f lowered by the number of those removed.
        window: N, pairs and shares remembered, at least 1.
        start: First round, from 0, in which somebody may be removed (the authors' code: 50).
        after: What follows a detection: "exclude": out for good, and pairs, shares and rows of absent clients begin
            anew; "round": out of this round.  The paper trains anew without them: the diagnostic
            ``aggregator/detected`` counts them.

    Note:
        It remembers an update and a model per client.  Clients without an earlier update are not judged, and those who
        were absent are judged from their last one.  The reference sets of the gap statistics are drawn each round.
        What begins anew after "exclude" is judged by one share at first, which may remove honest clients, too.
        Full-batch gradients are assumed: the noise of mini-batches drowns the predictions.
    """

    needs_ids = True
    needs_model = True

    def __init__(
        self,
        rule: Aggregator,
        window: PositiveInt = 10,
        start: NonNegativeInt = 50,
        after: Literal["exclude", "round"] = "exclude",
    ):
        super().__init__(rule)
        if rule.recalls_absent:
            raise SettingError(
                f"fldetector shows its rule no update of a client that it has removed, {type(rule).__name__} goes by "
                f"earlier ones, too; use another, such as krum."
            )
        self.window = window
        self.start = start
        self.after = after

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class.

        Raises:
            SettingError: If the updates do not say whose they are, or too few are left for the rule.
        """
        clients, known = clients_of(updates, "fldetector"), self._remembered
        model = server.parameters.clone()
        finite = updates.norms().isfinite().tolist()
        check_any([i for i, fine in enumerate(finite) if fine], f"{updates.n}", "fldetector")
        out = set(known.get("excluded", ()))
        inside = [i for i, client in enumerate(clients) if client not in out]
        shares, judged = self._shares(updates, clients, [i for i in inside if finite[i]], model)
        found: list[int] = []
        scores = torch.tensor([sum(s) / len(s) for s in (shares[clients[i]] for i in judged)], dtype=torch.float64)
        started = server.round.index >= self.start
        if len(judged) > 1 and started:
            draw = server.generator("gap")
            drawn = torch.rand(_REFERENCES, len(judged), generator=draw, dtype=torch.float64, device=draw.device).cpu()
            found = [judged[i] for i in malicious(scores, drawn)]
        kept = [i for i in inside if i not in found]
        result = self._ask(updates, server, kept)
        anew = bool(found) and self.after == "exclude"
        rows = {} if anew else dict(known.get("rows", {}))
        rows |= {clients[i]: [updates.rows[i].clone(), model] for i in inside if finite[i]}
        self._last = {
            "excluded": sorted(out | {clients[i] for i in found}) if self.after == "exclude" else [],
            "rows": rows,
            "shares": {} if anew else shares,
            "pairs": [] if anew else self._pairs(model, result.update),
            "model": model,
            "answer": result.update.clone(),  # a server's optimizer may write into the update
        }
        suspicion = torch.full((updates.n,), torch.nan, dtype=torch.float64)
        suspicion[judged] = scores
        accused = torch.ones(updates.n, dtype=torch.bool)
        accused[kept] = False
        suspicion[[i for i in range(updates.n) if i not in inside]] = torch.inf
        diagnostics = {**result.diagnostics, "detected": updates.n - len(kept)}
        return replace(result, diagnostics=diagnostics, suspicion=suspicion, accused=accused if started else None)

    def _shares(
        self, updates: Updates, clients: Sequence[int], rows: Sequence[int], model: Float[Tensor, " d"]
    ) -> tuple[dict[int, list[float]], list[int]]:
        """Add this round's shares to the remembered ones; say which rows have one."""
        known = self._remembered
        shares = dict(known.get("shares", {}))
        before, pairs = known.get("rows", {}), known.get("pairs", [])
        judged = [i for i in rows if clients[i] in before] if pairs else []
        if not judged:
            return shares, []
        moves, changes = (torch.stack([pair[k].to(model) for pair in pairs]) for k in (0, 1))
        products: dict[int, Tensor] = {}
        errors = []
        for i in judged:
            last, then = before[clients[i]]
            if id(then) not in products:
                products[id(then)] = hessian_product(moves, changes, model - then.to(model))
            last, product, now = last.to(model), products[id(then)], updates.rows[i].to(model)
            vectors = (last + product - now, last, product, now)
            errors.append(torch.stack([torch.linalg.vector_norm(v, dtype=torch.float64) for v in vectors]))
        lengths, *sizes = torch.stack(errors, dim=1)
        rounding = 100 * torch.finfo(model.dtype).eps * sum(sizes).median()  # a huge row must not excuse its own error
        if not lengths.isfinite().all():  # beside it every other error is nothing
            lengths = (~lengths.isfinite()).double()
        elif lengths.max() - lengths.min() <= rounding:  # also where all of them are 0
            lengths = torch.ones_like(lengths)
        parts = (lengths / lengths.sum() * (len(judged) / updates.n)).tolist()
        for i, share in zip(judged, parts, strict=True):
            shares[clients[i]] = [*shares.get(clients[i], []), share][-self.window :]
        return shares, judged

    def _pairs(self, model: Tensor, answer: Tensor) -> list[list[Tensor]]:
        """Add the newest pair to the remembered ones; a model that stayed tells nothing."""
        known = self._remembered
        pairs = list(known.get("pairs", []))
        if "model" in known:
            move = model - known["model"].to(model)
            if move.any():
                pairs.append([move, answer - known["answer"].to(answer)])
        return pairs[-self.window :]

    def _ask(self, updates: Updates, server: ServerOracle, kept: Sequence[int]) -> Aggregation:
        if len(kept) == updates.n:
            return aggregated(self.rule, updates, server)
        with _fewer(self.rule, updates.n - len(kept)):
            least = self.rule.least_n(server.n_classes)
            if len(kept) < least:
                raise SettingError(
                    f"fldetector needs {least} updates for its rule, got {len(kept)} of clients that it has not "
                    f"removed; lower aggregator.rule.f, or set aggregator.after to round."
                )
            matrix = torch.eye(updates.n)[list(kept)].to(updates.data_weights)
            shares = updates.data_weights[list(kept)]
            others = mix(updates, matrix, shares if shares.any() else None)
            others.ids = [clients_of(updates, "fldetector")[i] for i in kept]
            result = aggregated(self.rule, others, server)
        weights, trust = (None if w is None else w.to(matrix) @ matrix for w in (result.weights, result.trust))
        return replace(result, weights=weights, trust=trust, label_distributions=None)
