"""CAF, the covariance-bound agnostic filter: weigh down what stands out until the largest variance is smallest.

Youssef Allouah, Rachid Guerraoui, John Stephan. Towards Trustworthy Federated Learning with Untrusted Participants.
ICML 2025. arXiv:2505.01874.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.decomposition import eigh
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates

# A factor this near 0 is 0: copies of the worst row go with it, whatever rounding makes of their scores.
_TIE = 1e-9
# Share of the squared lengths below which a variance is rounding.
_ZERO = 2.0**-44


def caf_weights(gram: Float64[Tensor, "n n"], f: int) -> tuple[Float64[Tensor, " n"], list[tuple[float, float]]]:
    """Weigh the rows from their inner products about any origin; see `Caf`.

    Every direction v is a combination of rows: with a_i = c_i / sum c and K the inner products about mu, the matrix
    sqrt(a_i) K_ij sqrt(a_j) has the covariance's eigenvalues, and its top eigenvector u gives <x_i - mu, v> as
    (K (sqrt(a) u))_i, up to a factor that cancels in tau_i / max tau.

    Args:
        gram: Inner products.
        f: Byzantine clients tolerated.

    Returns:
        The weights a of the mean with the least variance, and (sum c, lambda) of every step.
    """
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "caf")
    inner, m = gram[rows][:, rows], len(rows)
    f = still_tolerated(f, n, m)
    counts = torch.ones_like(inner.diagonal())
    best, least, steps = counts / m, torch.inf, []
    while counts.sum() > m - 2 * f:
        share = counts / counts.sum()
        offset = inner @ share
        about = inner - offset[:, None] - offset + share @ offset
        root = share.sqrt()
        values, vectors = eigh(root[:, None] * about * root)
        variance = values[-1].clamp(min=0).item()
        steps.append((counts.sum().item(), variance))
        if variance < least:
            best, least = share, variance
        if variance <= _ZERO * (share @ inner.diagonal().abs()):
            break
        along = (about @ (root * vectors[:, -1])).abs()
        factor = 1 - (along / along[counts > 0].max()).square()
        counts = torch.where(factor > _TIE, counts * factor, 0)
    return gram.new_zeros(n).index_put((rows,), best), steps


class Caf(Aggregator):
    """Average by the weights that leave the least variance along any direction.

    From c_i = 1, while sum c > n - 2f: take mu = sum c_i x_i / sum c and the top eigenpair (lambda, v) of
    (1 / sum c) sum c_i (x_i - mu)(x_i - mu)^T; keep mu if lambda is the least so far; with tau_i = <x_i - mu, v>^2,
    c_i <- c_i (1 - tau_i / max tau), the maximum over c_i > 0.  The result is the mean mu of least lambda.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n; 0 gives the mean.

    Note:
        An update with NaN or inf is left out and counts among the f.  Where the largest variance is that of several
        directions, v is whichever the eigensolver returns.

    Two steps are taken, with means 3.75 and 1.06, variances 23.2 and 0.66:

    >>> Caf(f=1)(torch.tensor([[0.0], [1.0], [2.0], [12.0]])).round(decimals=2)
    tensor([1.0600])
    """

    least = "2f + 1"
    exact = True

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        weights, steps = caf_weights(updates.centred.gram, self.f)
        diagnostics: dict[str, int | float] = {"steps": len(steps)}
        if steps:
            diagnostics["variance"] = min(variance for _, variance in steps)
        return Aggregation(updates.combination(weights), weights, diagnostics)
