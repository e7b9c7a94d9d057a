"""GAS, gradient splitting: ask a rule about small groups of coordinates, and keep the clients near its answers.

Yuchen Liu, Chen Chen, Lingjuan Lyu, Fangzhao Wu, Sai Wu, Gang Chen. Byzantine-Robust Learning on Heterogeneous Data via
Gradient Splitting. ICML 2023. arXiv:2302.06079.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import signature

import pytorch_lightning as pl
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator, Weighting, check_minority
from lightning_fl.aggregator.krum import Krum, MultiKrum, Neighbours
from lightning_fl.columns import reduce_columns
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates, finite_rows

# Distances held at a time by the groups that Krum is asked about together.
_ENTRIES_CPU, _ENTRIES_GPU = 2**17, 2**26


def gas_weights(
    updates: Updates, f: int, groups: Sequence[Int64[Tensor, " _"]], answer: Callable[[Tensor], Tensor]
) -> Float64[Tensor, " n"]:
    """Weigh the rows; see `gradient_splitting`.

    Args:
        updates: The round.
        f: 0 <= 2f < n.
        groups: Coordinates of each group.
        answer: Maps the (q, n, k) columns of some groups to the rule's (q, k) answers.  A row with NaN or inf anywhere
            is NaN in every group.

    Returns:
        Equal weights for the n - f rows of least score.
    """
    check_minority(updates.n, f, "gas")
    rows = finite_rows(updates.squares, "gas")
    broken = torch.ones(updates.n, dtype=torch.bool, device=rows.device).index_fill(0, rows, False)
    scores = torch.zeros_like(updates.squares)
    for blocks in _blocks(updates.rows, groups):
        if len(rows) < updates.n:
            blocks = blocks.masked_fill(broken[:, None], torch.nan)
        away = blocks - answer(blocks)[:, None]
        scores += torch.linalg.vector_norm(away, dim=2, dtype=torch.float64).sum(0)
    kept = len(rows) - max(f - (updates.n - len(rows)), 0)
    weights = torch.zeros_like(scores)
    weights[rows[scores[rows].argsort(stable=True)[:kept]]] = 1 / kept
    return weights


def _blocks(rows: Tensor, groups: Sequence[Tensor]) -> Iterator[Tensor]:
    """Collect the columns of each group, as (q, n, k) for q neighbouring groups of equal size."""
    n = len(rows)
    gathered = rows.new_empty(n, sum(len(group) for group in groups))
    order = torch.cat(list(groups))
    for row, place in zip(rows, gathered, strict=True):  # row by row: a row fits the cache, the matrix does not
        torch.index_select(row, 0, order, out=place)
    most = max(1, (_ENTRIES_CPU if rows.device.type == "cpu" else _ENTRIES_GPU) // n**2)
    sizes = [len(group) for group in groups]
    start = first = 0
    while first < len(sizes):
        last = first
        while last < min(len(sizes), first + most) and sizes[last] == sizes[first]:
            last += 1
        end = start + (last - first) * sizes[first]
        yield gathered[:, start:end].unflatten(1, (last - first, sizes[first])).transpose(0, 1)
        start, first = end, last


def krum_answers(
    blocks: Float[Tensor, "q n k"], f: int, m: int | None = 1, neighbours: Neighbours = "n-f-2"
) -> Float[Tensor, "q k"]:
    """Ask Krum, or Multi-Krum, about several groups at once; see `krum` and `multi_krum`.

    Args:
        blocks: Columns of each group, a row of NaN for an update that is not finite.
        f: As the rule's.
        m: How many to average; None: n - f.
        neighbours: How many others count in a score.
    """
    rows = finite_rows(blocks[0, :, 0].double(), "krum")
    keep = len(rows) - max(f - (blocks.shape[1] - len(rows)), 0)
    columns = blocks[:, rows].double()
    gram = columns @ columns.transpose(1, 2)
    lengths = gram.diagonal(dim1=1, dim2=2)
    distances = (lengths[:, None] + lengths[:, :, None]).sub_(gram, alpha=2).clamp_(min=0)
    distances.diagonal(dim1=1, dim2=2).zero_()
    near = distances.flatten(0, 1).T  # a column per row of a group
    counted = keep - 1 if neighbours == "n-f-2" else keep  # itself at 0, and the others
    scores = reduce_columns(near, lambda values: values[:, :counted].sum(1)).view_as(lengths)
    best = scores.argsort(dim=1, stable=True)[:, : keep if m is None else min(m, len(rows))]
    weights = torch.zeros_like(scores).scatter_(1, best, 1 / best.shape[1])
    return (weights[:, None] @ columns)[:, 0].to(blocks)


def gradient_splitting(
    updates: Float[Tensor, "n d"], f: int, groups: Sequence[Int64[Tensor, " _"]], rule: Callable[..., Tensor]
) -> Float[Tensor, " d"]:
    """Average the n - f updates that are nearest to a rule's answers in groups of coordinates (Algorithm 1).

    In group q the rule makes g_q of the updates' coordinates x_i^(q).  The score of an update is
    s_i = sum_q ||x_i^(q) - g_q||.

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= 2f < n.
        groups: Coordinates of each of the p groups; the paper draws a partition into groups of equal size.
        rule: The base rule, such as `krum`, `bulyan` or `median`: maps the (n, k) coordinates of a group to (k,)
            numbers.  If it has a parameter f, it is told f.

    Returns:
        The mean of the n - f updates of least score; of equal scores the first.

    Raises:
        SettingError: If updates are not a floating-point matrix, no update is finite, there is no group, or f does not
            fit n or the rule.

    Note:
        An update with NaN or inf anywhere is left out of every group and counts among the f.

    Krum chooses row 1 in the first group and row 0 in the second; the scores are 1, 1, 3 and 17:

    >>> from lightning_fl.aggregator.krum import krum
    >>> clients = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [9.0, 10.0]])
    >>> gradient_splitting(clients, 1, [torch.tensor([0]), torch.tensor([1])], krum)
    tensor([1., 2.])
    """
    if not len(groups):
        raise SettingError("gas needs at least one group of coordinates, got none.")
    told = {"f": f} if "f" in signature(rule).parameters else {}
    rows = Updates(updates)
    return rows.combine(gas_weights(rows, f, groups, partial(_one_by_one, partial(rule, **told))))


def _one_by_one(rule: Callable[[Tensor], Tensor], blocks: Tensor) -> Tensor:
    return torch.stack([rule(columns) for columns in blocks])


class Gas(Weighting):
    """Average the updates nearest to a rule's answers in random groups of coordinates; see `gradient_splitting`.

    Args:
        rule: The base rule, with an f of its own; one without memory, since each round asks it once per group.
        f: Byzantine clients tolerated, 0 <= 2f < n.
        n_groups: p, groups drawn each round, at least 1; as many as coordinates where there are fewer.

    Raises:
        SettingError: If the rule remembers rounds or needs server data, or n_groups is out of range.
    """

    def __init__(self, rule: Aggregator, f: int, n_groups: int = 1000):
        if type(rule).on_train_batch_end is not pl.Callback.on_train_batch_end:
            raise SettingError(
                f"gas asks its rule once per group and needs one without memory, got {type(rule).__name__}; use "
                f"another, such as krum."
            )
        if rule.needs_server is not None:
            raise SettingError(
                f"gas shows its rule some coordinates at a time, {type(rule).__name__} compares whole updates with the "
                f"server's data; use another, such as krum."
            )
        if n_groups < 1:
            raise SettingError(f"gas needs n_groups >= 1, got {n_groups}; the paper takes 1000.")
        self.rule = rule
        self.f = f
        self.n_groups = n_groups

    def check(self, n: int, n_classes: int) -> None:
        """Check f and the rule; see the base class."""
        check_minority(n, self.f, "gas")
        self.rule.check(n, n_classes)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Pass on what the rule says; see the base class."""
        return self.rule.guarantee(n, n_classes)

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        order = torch.randperm(updates.d, generator=server.generator("gas")).to(updates.rows.device)
        groups = order.tensor_split(min(self.n_groups, updates.d))
        return gas_weights(updates, self.f, groups, partial(self._answer, server))

    def _answer(self, server: ServerOracle, blocks: Tensor) -> Tensor:
        rule = self.rule
        if type(rule) is Krum:
            return krum_answers(blocks, rule.f, 1, rule.neighbours)
        if type(rule) is MultiKrum:
            return krum_answers(blocks, rule.f, rule.m, rule.neighbours)
        return _one_by_one(lambda columns: rule.aggregate(Updates(columns), server).update, blocks)
