"""The medoid: the update with the least sum of distances to the others.

El Mahdi El Mhamdi, Rachid Guerraoui, Sébastien Rouault. The Hidden Vulnerability of Distributed Learning in Byzantium.
ICML 2018. arXiv:1802.07927.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.products import SAME, squared_distances
from lightning_fl.updates.updates import Updates


def medoid_weights(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, " n"]:
    """Give the medoid weight 1, from inner products about any origin; see `Medoid`.

    Sums of distances are compared with that of the origin, ||x_i - x_j|| - ||x_j|| = (||x_i||^2 - 2 <x_i, x_j>) /
    (||x_i - x_j|| + ||x_j||): a huge row would drown the differences between the sums.  Sums are equal up to rounding.
    """
    rows = finite_rows(gram.diagonal(), "medoid")
    inner = gram[rows][:, rows]
    lengths, distances = inner.diagonal(), squared_distances(inner).sqrt()
    further = (lengths[:, None] - 2 * inner) / (distances + lengths.clamp(min=0).sqrt())
    weights = gram.new_zeros(len(gram))
    sums = further.nan_to_num(nan=0.0).sum(1)  # 0 / 0: both rows lie at the origin
    least = sums.argmin()
    rounding = SAME * len(rows) * torch.maximum(lengths, lengths[least]).clamp(min=0).sqrt()
    weights[rows[(sums <= sums[least] + rounding).to(torch.uint8).argmax()]] = 1
    return weights


class Medoid(Weighting):
    """Return the update with the least sum_j ||x_i - x_j||, distances not squared.

    Where more than half of the updates are one and the same, it is that one.

    The sums of distances are 14, 12, 12 and 30; squared, they would be 126, 102, 86 and 302:

    >>> import torch
    >>> Medoid()(torch.tensor([[0.0], [1.0], [2.0], [11.0]]))
    tensor([1.])
    """

    exact = True

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        return medoid_weights(updates.centred.gram)
