"""AlignIns: keep updates that point like the others, by angle to the model and by their main signs.

Jiahao Xu, Zikai Zhang, Rui Hu. Detecting Backdoor Attacks in Federated Learning via Direction Alignment Inspection.
CVPR 2025. arXiv:2503.07978.
"""

from functools import partial
from typing import Annotated

import torch
from annotated_types import Gt, Le
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.medians import MedianOf, median_of, usual
from lightning_fl.aggregator.mixing import clipping_scales, finite_shares
from lightning_fl.aggregator.signs import sign_sums
from lightning_fl.aggregator.trust import equal_shares
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.shares import floored
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.ordered import largest_entries
from lightning_fl.updates.threads import in_threads
from lightning_fl.updates.updates import Updates


def _agreement(rows: Float[Tensor, "m d"], signs: Float[Tensor, " d"], k: int) -> Float64[Tensor, " m"]:
    """The share of each row's k largest entries whose sign is the given one."""

    def agreeing(row: Tensor) -> Tensor:
        return ((row.sign() == signs) & largest_entries(row, k)).count_nonzero()

    return torch.stack(in_threads(agreeing, rows, rows.device.type)).double() / k


class Alignins(Aggregator):
    """Average the updates that are usual in two ways, clipped to the median norm of these (Algorithm 1).

    With p_j = sign(sum_i sign(x_ij)), each update has the cosine TDA_i with the global model w, and MPSA_i, the share
    of its largest entries whose sign is p_j.  An update stays where both are less than lambda_c and lambda_s standard
    deviations from the median over clients.

    Args:
        lambda_c: Limit on TDA, > 0.
        lambda_s: Limit on MPSA, > 0.
        sparsity: Share of the entries that are looked at for MPSA, 0 < sparsity <= 1.
        median: Median of the norms: "middle", the mean of the middle two of an even number, or "lower", as the authors'
            code takes it.

    Note:
        Where nobody stays the update is zero, as in the authors' code; ``aggregator/kept`` counts those that stay.  A
        zero update has cosine 0; the code divides by at least 1e-6, which moves cosines of tiny updates.  Buffers such
        as running means, which the code counts among the entries, play no part.  Those kept count by their data
        weights.  An update with NaN or inf is left out of everything.  The length is the median of those kept only:
        attackers who are more than half of these set it, so that nothing bounds the result.
    """

    needs_model = True
    robust = False  # see the note
    moves_with = ()
    searches = True

    def __init__(
        self,
        lambda_c: PositiveFloat = 1.0,
        lambda_s: PositiveFloat = 1.0,
        sparsity: Annotated[float, Gt(0), Le(1)] = 0.3,
        median: MedianOf = "middle",
    ):
        self.lambda_c = lambda_c
        self.lambda_s = lambda_s
        self.sparsity = sparsity
        self.median: MedianOf = median

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        norms, model = updates.squares.sqrt(), server.parameters.to(updates.device)
        rows = finite_rows(norms, "alignins")
        k = max(floored(self.sparsity, updates.d), 1)
        signs = updates.by_column(sign_sums, mark_broken=True).sign_().to(updates.dtype)
        main = updates.by_row(partial(_agreement, signs=signs, k=k))[rows].cpu()
        lengths = norms[rows] * torch.linalg.vector_norm(model, dtype=torch.float64).cpu()
        cosines = torch.where(lengths > 0, updates.products(model)[rows] / lengths, 0)
        kept = usual(cosines, self.lambda_c) & usual(main, self.lambda_s)
        weights = torch.zeros_like(norms)
        if kept.any():
            rows = rows[kept]
            shares = finite_shares(updates.data_weights, rows)[rows]
            radius = median_of(norms[rows], self.median)
            weights[rows] = shares / shares.sum() * clipping_scales(norms[rows], radius)
        trust = equal_shares(torch.zeros_like(norms).index_fill(0, rows, 1)) if kept.any() else weights
        return Aggregation(updates.combination(weights), weights, {"kept": int(kept.sum())}, trust)
