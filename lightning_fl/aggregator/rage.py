"""RAGE: weigh down, step by step, what stands out along the direction of largest variance.

Deepesh Data, Suhas Diggavi. Byzantine-Resilient High-Dimensional SGD with Local Iterations on Heterogeneous Data.
ICML 2021. arXiv:2006.13041.  With a fixed number of steps, as in Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024.
arXiv:2208.12932.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.decomposition import eigh
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

# A factor this near 0 is 0: copies of the worst row go with it, whatever rounding makes of their scores.
_TIE = 1e-9


def rage_weights(
    gram: Float64[Tensor, "n n"],
    n_iterations: int,
    centred: bool = False,
    offset: Float64[Tensor, " n"] | None = None,
) -> Float64[Tensor, " n"]:
    """Weigh the rows from their inner products; see `Rage`.

    Every direction v is a combination of rows, so the d columns are not needed: v = sum_j direction_j (x_j - mu), up to
    a factor which cancels in tau_i / tau_max.

    Args:
        gram: <x_i - r, x_j - r> about any origin r; one in the middle of the rows keeps most digits.
        n_iterations: See `Rage`.
        centred: See `Rage`.
        offset: <x_i - r, r>, which scores that are not centred need.  None: r = 0.

    Returns:
        w_i / sum w; 0 where a row is not finite.
    """
    n = len(gram)
    rows = finite_rows(gram.diagonal(), "rage")
    inner = gram[rows][:, rows]
    along_r = torch.zeros_like(inner.diagonal()) if offset is None else offset[rows]
    kept = torch.full_like(inner.diagonal(), 1 / len(rows))
    for _ in range(n_iterations - (n - len(rows))):
        mean = inner @ kept
        covariance = inner - mean[:, None] - mean + kept @ mean  # <x_i - mu, x_j - mu>
        scores = inner - mean[:, None] + along_r - kept @ along_r  # <x_i, x_j - mu>
        root = kept.sqrt()
        direction = root * eigh(root[:, None] * covariance * root).eigenvectors[:, -1]
        along = ((covariance if centred else scores) @ direction).abs()
        factor = 1 - (along / along[kept > 0].max()).square()
        left = torch.where(factor > _TIE, kept * factor, 0)
        if not left.any():  # all the same, or equally far from mu: there is nothing to choose
            break
        kept = left / left.sum()
    weights = gram.new_zeros(n)
    weights[rows] = kept
    return weights


class Rage(Weighting):
    """Average the updates after n_iterations steps of spectral filtering.

    From w_i = 1/n, a step computes mu = sum w_i x_i / sum w_i, the top right singular vector v of the matrix with rows
    sqrt(w_i / sum w) (x_i - mu), and the scores tau_i = <x_i, v>^2; then w_i <- (1 - tau_i / tau_max) w_i, where
    tau_max is the largest over w_i > 0.

    Args:
        n_iterations: Steps, 0 <= n_iterations < n.
        centred: Score by <x_i - mu, v>^2, as Data and Diggavi do.

    Note:
        Data and Diggavi stop by a threshold on the variance instead.  The BOBA paper's text says f steps; its code has
        20 as default, and its accuracy on MNIST without attack (59.8) is that of 20 (59.9), not of f = 16 (69.8).  A
        step that would leave no row is not taken, and a row with NaN or inf counts as removed by one of the steps.
        Where the largest variance is that of several directions, v is whichever the eigensolver returns.

    The step takes the last row out, and keeps 1 - (5/9)^2 and 1 - (4/9)^2 of the first two (centred: mu = 6):

    >>> import torch
    >>> Rage(n_iterations=1, centred=True)(torch.tensor([[1.0], [2.0], [15.0]]))
    tensor([1.5372])
    """

    least = "n_iterations + 1"
    moves_with = ("scale", "rotation")

    def __init__(self, n_iterations: NonNegativeInt = 20, centred: bool = False):
        self.n_iterations = n_iterations
        self.centred = centred

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        inner = updates.centred
        return rage_weights(inner.gram, self.n_iterations, self.centred, inner.offset)
