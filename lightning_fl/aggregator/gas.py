"""GAS, gradient splitting: ask a rule about small groups of coordinates, and keep the clients near its answers.

Yuchen Liu, Chen Chen, Lingjuan Lyu, Fangzhao Wu, Sai Wu, Gang Chen. Byzantine-Robust Learning on Heterogeneous Data via
Gradient Splitting. ICML 2023. arXiv:2302.06079.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator, Weighting
from lightning_fl.aggregator.guarantee import told_fewer
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import DivergedError, SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates

# Into how many parts the groups fall whose columns are collected at a time.
_PARTS = 2
# Bytes that a CPU reads at once.
_LINE = 64


def gas_weights(
    updates: Updates, f: int, groups: Sequence[Int64[Tensor, " _"]], distances: Callable[[Tensor], Tensor]
) -> Float64[Tensor, " n"]:
    """Weigh the rows; see `Gas`.

    Args:
        updates: The round.
        f: 0 <= 2f < n.
        groups: Coordinates of each group.
        distances: Maps the (q, n, k) columns of some groups to the rows' (q, n) distances from the rule's answers.  A
            row with NaN or inf anywhere is NaN in every group, and its distances do not matter.

    Returns:
        Equal weights for the n - f rows of least score.

    Raises:
        DivergedError: If no row is finite, or the rule passes on what is not.
    """
    norms = updates.norms()
    rows = finite_rows(norms, "gas")
    broken = torch.ones(updates.n, dtype=torch.bool).index_fill(0, rows, False).to(updates.device)
    scores = norms.new_zeros(updates.n, device=updates.device)
    groups, stand_for = updates.held.some_of(groups)
    for blocks in _blocks(updates.rows, groups):
        if len(rows) < updates.n:
            blocks = blocks.masked_fill(broken[:, None], torch.nan)
        shares, stand_for = stand_for.tensor_split([len(blocks)])
        scores += (shares[:, None] * distances(blocks)).sum(0)
    scores = scores.cpu()
    if not scores[rows].isfinite().all():
        raise DivergedError("gas needs a rule that leaves out updates with NaN or inf, got one that passes them on.")
    kept = len(rows) - still_tolerated(f, updates.n, len(rows))
    weights = torch.zeros_like(scores)
    weights[rows[scores[rows].argsort(stable=True)[:kept]]] = 1 / kept
    return weights


def _blocks(rows: Tensor, groups: Sequence[Tensor]) -> Iterator[Tensor]:
    """Collect the columns of each group, as (q, n, k) for q neighbouring groups of equal size.

    What is yielded is overwritten by what follows.
    """
    n, size = len(rows), -(-len(groups) // _PARTS)
    line = max(1, _LINE // rows.element_size())
    parts = [groups[i : i + size] for i in range(0, len(groups), size)]
    memory = rows.new_empty(n * max(sum(map(len, part)) for part in parts))
    for part in parts:
        order = torch.cat(list(part))
        gathered = memory[: n * len(order)].view(n, -1)

        for row, place in zip(rows, gathered, strict=True):  # one by one: two at once take twice as long
            row[::line].sum()  # brings the row into the cache, in order: half of the time
            torch.index_select(row, 0, order, out=place)
        start = 0
        for k, run in groupby(map(len, part)):
            q = len(list(run))
            yield gathered[:, start : start + q * k].unflatten(1, (q, k)).transpose(0, 1)
            start += q * k


class Gas(Wrapper, Weighting):
    """Average the n - f updates that are nearest to a rule's answers in groups of coordinates (Algorithm 1).

    In group q the rule makes g_q of the updates' coordinates x_i^(q).  The score of an update is
    s_i = sum_q ||x_i^(q) - g_q||; of equal scores the first counts.  Each round draws groups of equal size.

    Args:
        rule: The base rule, with an f of its own; one without memory, since each round asks it once per group, and
            without need of the server's data or model.
        f: Byzantine clients tolerated, 0 <= 2f < n.
        n_groups: p, at least 1 (the paper takes 1000); as many as coordinates where there are fewer.

    Note:
        An update with NaN or inf anywhere is NaN in every group, so that the rule leaves it out, and counts among the
        f.

    Krum chooses row 0 in both groups; the scores are 0, 2, 4 and 18:

    >>> import torch
    >>> from lightning_fl.aggregator.krum import Krum
    >>> clients = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [9.0, 10.0]])
    >>> Gas(Krum(f=1), f=1, n_groups=2)(clients)
    tensor([1., 2.])
    """

    least = "2f + 1"
    exact = True
    searches = True
    moves_with = ("shift", "scale")

    def __init__(self, rule: Aggregator, f: NonNegativeInt, n_groups: PositiveInt = 1000):
        super().__init__(rule)
        if rule.remembers:
            while isinstance(rule, Wrapper):
                rule = rule.rule
            raise SettingError(
                f"gas asks its rule once per group and needs one without memory, got {type(rule).__name__}; use "
                f"another, such as krum."
            )
        if rule.needs_server is not None or rule.needs_model:
            raise SettingError(
                f"gas shows its rule some coordinates at a time, {type(rule).__name__} compares whole updates with the "
                f"server's {'model' if rule.needs_model else 'data'}; use another, such as krum."
            )
        if rule.needs_layout:
            raise SettingError(
                f"gas draws its groups across the model's tensors, {type(rule).__name__} goes by these; use "
                f"another, such as krum."
            )
        self.f = f
        self.n_groups = n_groups

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f with the rule's, and pass on what the rule says; see the base class."""
        return told_fewer(self.rule, self.f) or super().guarantee(n, n_classes)

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        order = torch.randperm(updates.d, generator=server.generator("gas")).to(updates.device)
        groups = order.tensor_split(min(self.n_groups, updates.d))
        return gas_weights(updates, self.f, groups, self.rule.distances(updates, server))
