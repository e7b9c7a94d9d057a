"""Huber aggregation: the point of least Huber loss, which counts a far update by a fixed pull.

Puning Zhao, Fei Yu, Zhiguo Wan. A Huber Loss Minimization Approach to Byzantine Robust Federated Learning. AAAI 2024.
arXiv:2308.12581.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.majority import centre_on_majority
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import among, finite_rows
from lightning_fl.updates.updates import Updates

_MOST_STEPS, _STILL = 1000, 1e-9


def huber_weights(
    gram: Float64[Tensor, "n n"], weights: Float[Tensor, " n"], radii: Float64[Tensor, " n"]
) -> Float64[Tensor, " n"]:
    """Find the coefficients of the minimum from inner products about any origin; see `Huber`.

    Args:
        gram: Inner products.
        weights: a, at least 0 with a positive sum.
        radii: T_i > 0.

    Raises:
        DivergedError: If no row of positive weight is finite.
    """
    rows = finite_rows(gram.diagonal(), "huber", weights)
    pull, radius = weights[rows].double(), radii[rows]
    inner, _, reach = centre_on_majority(among(gram, rows), pull / pull.sum())
    mix = torch.zeros_like(pull)  # c = sum_i mix_i x_i, from that row in the middle on
    least = (_STILL * (reach or radius.max())) ** 2
    for _ in range(_MOST_STEPS):
        products = inner @ mix
        squares = mix @ products - 2 * products + inner.diagonal()
        held = pull * (radius / squares.clamp(min=0).sqrt()).clamp(max=1)
        step = held / held.sum() - mix
        mix = mix + step
        if step @ inner @ step <= least:
            break
    return torch.zeros_like(weights, dtype=torch.float64).index_put((rows,), mix)


class Huber(Weighting):
    """Minimise sum_i a_i phi_T(||c - x_i||), phi_T(u) = u^2 / 2 up to T and T u - T^2 / 2 beyond, over c.

    a are the data weights.  The steps c <- sum b_i x_i / sum b_i, b_i = a_i min(1, T / ||c - x_i||), are repeated until
    c stays, which they do at the minimum, as the loss is convex.

    Args:
        radius: T, > 0, a length in the unit of the updates; no default fits all.  A large one gives the average, a
            small one the geometric median.
        by_samples: Whether T_i = radius / sqrt(n a_i): who has more samples is expected to be nearer.

    Note:
        The paper's T_i is a constant over sqrt(n_i) for n_i samples; a rule knows the clients' shares a_i only, so
        radius is that of a client with the average number.  The authors' code works on models, starts at 0 and stops
        at steps below 1e-3, a length in its units.  An update with NaN or inf gets weight 0.

    At 1 the pulls of 0 and 9, both of length 1, cancel:

    >>> Huber(radius=1.0)(torch.tensor([[0.0], [1.0], [9.0]])).round(decimals=6)
    tensor([1.])
    """

    moves_with = ("shift", "rotation")

    def __init__(self, radius: PositiveFloat = 1.0, by_samples: bool = False):
        self.radius = radius
        self.by_samples = by_samples

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        shares = updates.data_weights
        radii = self.radius / (updates.n * shares).sqrt() if self.by_samples else torch.full_like(shares, self.radius)
        return huber_weights(updates.centred.gram, shares, radii)
