"""FedSECA: elect each coordinate's sign by clients who agree, then average the entries of that sign.

Joseph Geo Benjamin, Mothilal Asokan, Mohammad Yaqub, Karthik Nandakumar. FedSECA: Sign Election and Coordinate-wise
Aggregation of Gradients for Byzantine Tolerant Federated Learning. CVPR 2025 Workshops (FedVision), pp. 1771-1780.
arXiv:2411.03861.
"""

from functools import partial
from math import floor
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation
from lightning_fl.aggregator.medians import MedianOf, median_of
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.remembering import Remembering
from lightning_fl.errors import SettingError
from lightning_fl.ranges import Share
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.ordered import sorted_rows
from lightning_fl.updates.products import float64_columns, kth_smallest
from lightning_fl.updates.updates import Updates

# What rounding alone can make of a vote, and relative to an entry of its quantile.
_ROUNDING = 1e-12


def concordance(signs: Float64[Tensor, "n n"]) -> Float64[Tensor, " n"]:
    """Compute rho_i = max(0, (1/n) sum_l sign(s_il)) from the inner products s of the rows' signs."""
    return signs.sign().mean(1).clamp(min=0)


def _sign_products(given: Float[Tensor, "n k"], rows: Int64[Tensor, " m"]) -> Float64[Tensor, "m m"]:
    found = given.new_zeros(len(rows), len(rows), dtype=torch.float64)
    for columns in float64_columns(given):
        signs = columns[rows].sign()
        found += signs @ signs.T
    return found


def _quantiles(rows: Float[Tensor, "m d"], gamma: float) -> Float64[Tensor, " m"]:
    """Between order statistics, at gamma (d - 1), of each row's sizes."""
    place = gamma * (rows.shape[1] - 1)
    low, wide = floor(place), torch.promote_types(rows.dtype, torch.float32)
    found = []
    for row in rows:
        at = [kth_smallest(row.abs().to(wide)[None], min(k, len(row))).double() for k in (low + 1, low + 2)]
        found.append(at[0] + (place - low) * (at[1] - at[0]))
    return torch.cat(found)


class Fedseca(Remembering):
    """Elect the sign of every coordinate, and average the clipped entries that have it.

    1. rho_i = max(0, (1/n) sum_l sign(sum_j sign(x_ij) sign(x_lj))), how far client i agrees with the others.
    2. mu_j = median_i |x_ij| min(1, c / ||x_i||), c the median norm.
    3. y_ij is x_ij cut to [-mu_j, mu_j], and 0 where |x_ij| is below the gamma-quantile of its row.
    4. e_j = sign(sum_i rho_i sign(y_ij)), and r_j is the mean of the y_ij of this sign, 0 where there is none.
    5. The answer is m = beta m + (1 - beta) r, m = 0 before the first round.

    Its trust is rho over the sum of rho.

    Args:
        gamma: Which quantile, 0 <= gamma < 1; 0 keeps all entries.
        momentum: beta, 0 <= beta <= 1; at 0 the answer is r.  The first answer is (1 - beta) r.
        variant: "code", as above and in the authors' program; "paper": the clipped entries x_ij min(1, c / ||x_i||)
            are cut, those of the quantile's size become 0, too, and the x_ij elect.
        median: "middle", the mean of the middle two of an even number, or "lower", as in the code.

    Note:
        The paper's equations were not at hand in full; "paper" is as another implementation states them.  An update
        with NaN or inf is left out of everything.
    """

    moves_with = ("scale",)

    def __init__(
        self,
        gamma: Annotated[float, Ge(0), Lt(1)] = 0.9,
        momentum: Share = 0.5,
        variant: Literal["code", "paper"] = "code",
        median: MedianOf = "middle",
    ):
        self.gamma = gamma
        self.momentum = momentum
        self.variant = variant
        self.median: MedianOf = median

    def elected(self, updates: Updates) -> tuple[Float[Tensor, " d"], Float64[Tensor, " n"]]:
        """Compute r and rho of one round."""
        norms = updates.squares.sqrt()
        rows = finite_rows(norms, "fedseca")
        there = rows.to(updates.device, non_blocking=True)
        rho = concordance(updates.over_columns(partial(_sign_products, rows=there)))
        scales = clipping_scales(norms[rows], median_of(norms[rows], self.median))
        scales = scales.to(updates.device, non_blocking=True)
        cuts = updates.by_row(partial(_quantiles, gamma=self.gamma))[there]

        def mean_of_elected(given: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
            parts = [self._elect(columns[there], rho, scales, cuts) for columns in float64_columns(given)]
            return torch.cat(parts).to(given)

        return updates.by_column(mean_of_elected), torch.zeros_like(norms).index_put((rows,), rho.cpu())

    def _elect(self, x: Tensor, rho: Tensor, scales: Tensor, cuts: Tensor) -> Float64[Tensor, " k"]:
        size, clipped, paper = x.abs(), scales[:, None] * x, self.variant == "paper"
        ordered, n = sorted_rows(clipped.abs().T), len(x)
        limit = ordered[:, (n - 1) // 2]
        if self.median == "middle":
            limit = limit / 2 + ordered[:, n // 2] / 2
        y = (clipped if paper else x).clamp(-limit, limit)
        cuts = cuts[:, None]
        small = size <= (1 + _ROUNDING) * cuts if paper else size < (1 - _ROUNDING) * cuts
        y = y.masked_fill(small, 0)
        votes = rho @ (x if paper else y).sign()
        elected = votes.sign() * (votes.abs() > _ROUNDING)
        agrees = y * elected > 0
        return (y * agrees).sum(0) / agrees.sum(0).clamp(min=1)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        mean, rho = self.elected(updates)
        before = self._remembered.get("momentum")
        if before is not None and len(before) != updates.d:
            raise SettingError(
                f"fedseca remembers an update of length {len(before)}, got updates of length {updates.d}; use a "
                f"new rule for another model."
            )
        answer = (1 - self.momentum) * mean
        if before is not None:
            answer = answer + self.momentum * before.to(answer)
        self._last = {"momentum": answer.clone()}  # a server's optimizer may write into the update
        return Aggregation(answer, trust=rho / rho.sum().clamp(min=_ROUNDING))
