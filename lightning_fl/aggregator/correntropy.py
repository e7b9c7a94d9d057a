"""Maximum correntropy aggregation (MCA): the point that looks most like the updates through a Gaussian kernel.

Zhirong Luan, Wenrui Li, Meiqin Liu, Badong Chen. Robust Federated Learning: Maximum Correntropy Aggregation Against
Byzantine Attacks. IEEE Transactions on Neural Networks and Learning Systems 36(1), 2025, 62-75.
doi:10.1109/TNNLS.2024.3383294.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.majority import centre_on_majority
from lightning_fl.ranges import Fraction, PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

_MOST_STEPS = 1000


def correntropy_weights(
    gram: Float64[Tensor, "n n"], weights: Float[Tensor, " n"], bandwidth: float | None = None, eps: float = 1e-5
) -> Float64[Tensor, " n"]:
    """Find the coefficients of the point of maximum correntropy; see `Correntropy`.

    Args:
        gram: Inner products between the rows, about any origin; one in their middle keeps most digits.
        weights: alpha, at least 0 with a positive sum.
        bandwidth: s; None: the radius of the ball that holds more than half of the weight.
        eps: When to stop, relative to s.

    Returns:
        kappa_i / sum_j kappa_j; 0 where a row is not finite or has weight 0.

    Raises:
        DivergedError: If no row of positive weight is finite.
    """
    rows = finite_rows(gram.diagonal(), "correntropy", weights)
    alpha = weights[rows].double() / weights[rows].double().sum()
    gram, squares, radius = centre_on_majority(gram[rows][:, rows], alpha)
    width = radius if bandwidth is None else bandwidth
    # Width 0: more than half of the weight lies on one point.
    kernel = _climb(gram, squares, alpha, width, eps) if width else alpha * (squares == 0)
    return torch.zeros_like(weights, dtype=torch.float64).index_put((rows,), kernel / kernel.sum())


def _climb(gram: Tensor, squares: Tensor, alpha: Tensor, width: float, eps: float) -> Tensor:
    """Repeat y <- sum_i kappa_i z_i / sum_i kappa_i from the origin, which is a row."""
    mix = torch.zeros_like(alpha)  # y = sum_i mix_i z_i
    for _ in range(_MOST_STEPS):
        kernel = alpha * torch.exp(-squares / width / width / 2)
        step = kernel / kernel.sum() - mix
        if (step @ gram @ step).clamp(min=0).sqrt() <= eps * width:
            break
        mix = mix + step
        products = gram @ mix
        squares = (mix @ products - 2 * products + gram.diagonal()).clamp(min=0)
    return kernel


class Correntropy(Weighting):
    """Aggregate by maximum correntropy, argmax_y sum_i alpha_i exp(-||y - z_i||^2 / (2 s^2)), alpha the data weights.

    Repeat the half-quadratic step y <- sum_i kappa_i z_i / sum_i kappa_i with kappa_i = alpha_i exp(-||y - z_i||^2 /
    (2 s^2)); it never lowers the correntropy.  The result is the local maximum that is reached from the centre of the
    smallest ball around an update that holds more than half of the weight.

    Args:
        bandwidth: s, the kernel's width, > 0 in the unit of the updates.  Far above the spread of the updates it gives
            their mean.  None: the radius of that ball.
        eps: Stop when a step is at most eps * s long, 0 < eps < 1 (RAGA: 1e-5).

    Note:
        RAGA's comparison does not give s, start or what its tolerance of 1e-5 bounds.  Here the default s and the start
        are such that f < n / 2 Byzantine clients choose neither.  A non-finite update gets weight 0.  At most 1,000
        steps are taken.

    Three of five lie within 1 of a corner of the square, so s = 1; the fifth has kappa = exp(-9900) / 5:

    >>> square = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> Correntropy()(torch.tensor([*square, [100.0, 100.0]])).round(decimals=3)
    tensor([0.5000, 0.5000])
    """

    exact = True

    def __init__(self, bandwidth: PositiveFloat | None = None, eps: Fraction = 1e-5):
        self.bandwidth = bandwidth
        self.eps = eps

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Return the normalised kernel values; see the base class."""
        return correntropy_weights(updates.centred.gram, updates.data_weights, self.bandwidth, self.eps)
