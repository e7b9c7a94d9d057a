"""The geometric median: the point with the least weighted sum of distances to the updates.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Han Hu, Hangguan Shan, Tony Q. S. Quek, Puning Zhao. Federated Learning Resilient
to Byzantine Attacks and Data Heterogeneity (RAGA). IEEE Transactions on Mobile Computing, 2025. arXiv:2403.13374.

A point is a combination of rows, so every distance follows from the Gram matrix.  One of the rows is made the origin:
distances between honest rows keep their digits beside rows of 1e30.
"""

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.aggregator.majority import centre_on_majority, move_origin
from lightning_fl.ranges import Fraction
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.theory.robustness import median_kappa
from lightning_fl.updates.finite import among, finite_rows
from lightning_fl.updates.products import by_parts, distances_of
from lightning_fl.updates.updates import Updates

_MOST_STEPS = 100  # 2 is usual; 10 were the most in 500 hostile problems
# Rows up to which Newton's system is solved directly; beyond, the products at most and the residual left.
_MOST_SOLVED, _MOST_PRODUCTS, _SOLVED = 1024, 50, 1e-8


def geometric_median_weights(
    gram: Float64[Tensor, "n n"], weights: Float[Tensor, " n"], eps: float = 1e-5
) -> Float64[Tensor, " n"]:
    """Find the coefficients of the geometric median; see `GeometricMedian`.

    With nu = eps * radius, minimise F_nu(y) = sum_i alpha_i h(||y - z_i||), where h(t) = t from nu on and
    t^2 / (2 nu) + nu / 2 below, so that F <= F_nu <= F + nu / 2: from the row with the least F, by Newton steps with a
    line search, a Weiszfeld step after each.  Stop when R ||grad F_nu(y)|| <= nu / 2.  That certifies
    F(y) <= F(y*) + nu, as F_nu is convex and ||y - y*|| <= R = min_k 2 S_k / (2 A_k - 1), where the k rows nearest to y
    hold the weight A_k > 1/2 and S_k = sum of their alpha_i ||y - z_i||: F(y*) <= F(y) needs
    A_k ||y - y*|| - 2 S_k - (1 - A_k) ||y - y*|| <= 0.

    Args:
        gram: Inner products between the rows, about any origin; one in their middle keeps most digits.
        weights: alpha, at least 0 with a positive sum.
        eps: See `GeometricMedian`.

    Returns:
        Coefficients, at least 0 with sum 1; 0 where a row is not finite or has weight 0.

    Raises:
        SettingError: If no row of positive weight is finite.
    """
    rows = finite_rows(gram.diagonal(), "geometric_median", weights)
    alpha = weights[rows].double() / weights[rows].double().sum()
    gram, distances, radius = centre_on_majority(among(gram, rows), alpha)
    if radius:
        gram = move_origin(gram, _best_row(gram, alpha))  # in place: it is no longer the one that was given
        found = _minimise(gram, alpha, eps * radius)
    else:  # more than half of the weight lies on one point, which is the median
        found = alpha * (distances == 0)
    return torch.zeros_like(weights, dtype=torch.float64).index_put((rows,), found / found.sum())


def _best_row(gram: Tensor, alpha: Tensor) -> int:
    """The row with the least F.

    F(z_i) - F(0) is summed from differences of distances as (a^2 - b^2) / (a + b): a huge row would drown them in F.
    """
    lengths = gram.diagonal().clamp(min=0)

    def differences(rows: slice) -> Tensor:
        inner = gram[rows]
        distances = distances_of(rows, inner, gram.diagonal())
        distances.diagonal(rows.start).zero_()
        found = (lengths[rows, None] - 2 * inner).div_(distances.sqrt_().add_(lengths.sqrt()))
        return found.nan_to_num_(nan=0.0) @ alpha  # 0 / 0: i and j both lie at the origin

    return int(by_parts(differences, torch.empty_like(alpha)).argmin())


def _solve(
    gram: Tensor, mix: Tensor, products: Tensor, distances: Tensor, bend: Tensor, scale: Tensor, alpha: Tensor
) -> Tensor:
    """Solve ((1 + 1e-12) scale I - B C B) x = B C alpha, B = diag(bend), C the cosines between the y - z_i.

    Of many rows by conjugate gradients, which need no further matrix and a few dozen products with this one; where
    they end early, the step is a shorter one downhill.
    """
    if len(gram) <= _MOST_SOLVED:
        cosines = (mix @ products - products[:, None] - products + gram) / (distances[:, None] * distances)
        system = (1 + 1e-12) * scale * torch.eye(len(gram)).to(gram) - bend[:, None] * cosines * bend
        return torch.linalg.solve(system, bend * (cosines @ alpha))

    def cosines_times(vector: Tensor) -> Tensor:
        scaled = vector / distances
        return (gram @ scaled + (mix @ products - products) * scaled.sum() - products @ scaled) / distances

    found = torch.zeros_like(alpha)
    direction = residual = bend * cosines_times(alpha)
    square = least = residual @ residual
    for _ in range(_MOST_PRODUCTS):
        if square <= _SOLVED**2 * least:
            break
        moved = (1 + 1e-12) * scale * direction - bend * cosines_times(bend * direction)
        length = square / (direction @ moved)
        found = found + length * direction
        residual = residual - length * moved
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return found


def _minimise(gram: Tensor, alpha: Tensor, nu: float) -> Tensor:
    """Minimise F from the origin, which is a row, to a certified gap of nu."""
    lengths = gram.diagonal()
    fractions = 0.5 ** torch.arange(50, dtype=gram.dtype, device=gram.device)[:, None]
    mix = torch.zeros_like(alpha)  # y = sum_i mix_i z_i
    for _ in range(_MOST_STEPS):
        products = gram @ mix
        squares = mix @ products - 2 * products + lengths  # ||y - z_i||^2
        distances = squares.clamp(min=nu**2).sqrt()
        pull = alpha / distances
        weiszfeld = pull / pull.sum()
        step = weiszfeld - mix

        slope = pull.sum() * (step @ gram @ step).clamp(min=0).sqrt()  # ||grad F_nu(y)||
        near = distances.argsort(stable=True)
        held, sums = alpha[near].cumsum(0), (alpha * distances)[near].cumsum(0)
        if slope * (2 * sums / (2 * held - 1))[held > 0.5].min() <= nu / 2:
            break

        # Newton: (sum(pull) I - V V^T) step = -grad F_nu, column i of V being bend_i (y - z_i) / ||y - z_i||.
        bend = torch.where(squares > nu**2, pull, 0.0).sqrt()
        turn = bend * _solve(gram, mix, products, distances, bend, pull.sum(), alpha) / (pull.sum() * distances)
        step = step + turn - turn.sum() * mix
        # Of the steps 1, 1/2, 1/4, ... take the one at which F_nu is most level along the line; it is no higher there.
        moved = gram @ step
        along, square = mix @ moved - moved, step @ moved
        lines = (squares + 2 * fractions * along + fractions**2 * square).clamp(min=nu**2).sqrt()
        best = ((along + fractions * square) / lines @ alpha).abs().argmin()
        mix = mix + fractions[best] * step
        # A Weiszfeld step lowers F_nu further and brings the coefficients to where they settle: `step` keeps digits.
        products = gram @ mix
        pull = alpha / (mix @ products - 2 * products + lengths).clamp(min=nu**2).sqrt()
        mix = pull / pull.sum()
    return weiszfeld


class GeometricMedian(Weighting):
    """Aggregate by the weighted geometric median argmin_y F(y), F(y) = sum_i alpha_i ||y - z_i|| (RAGA, equation 8).

    Where honest clients hold the share C > 1/2 of the weight, ||z|| <= (2 sum_honest alpha_i ||z_i|| + gap) / (2C - 1)
    (68), whatever the others send.

    alpha are the data weights.  The result is the point sum_i a_i z_i, a_i proportional to
    alpha_i / max(||y - z_i||, eps * radius) at a y that is as good as eps says.

    Args:
        eps: F(z) <= min F + eps * radius, 0 < eps < 1.  radius: that of the smallest ball around an update that holds
            more than half of the weight.

    Note:
        The paper bounds the gap by eps itself (9); here it is relative, so that scaling the updates scales the result,
        and relative to a radius that f < n / 2 Byzantine clients cannot stretch.  As long as the radius is at most 1
        the bound is the paper's or tighter.  It holds up to the rounding of inner products, which hides distances
        below 1e-7 of those to the middle of the rows, and for 100 Newton steps.  A non-finite update gets weight 0.
        Where all updates are on a line, as for d = 1, many points may be medians; rounding chooses one.

    The corners of a convex quadrilateral have their median where the diagonals cross, here y = x and y = 2 - x:

    >>> import torch
    >>> corners = torch.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 4.0], [6.0, -4.0]])
    >>> GeometricMedian()(corners).round(decimals=3)
    tensor([1., 1.])
    """

    exact = True

    def __init__(self, eps: Fraction = 1e-5):
        self.eps = eps

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the bound for b, which is proven for equal weights; see the base class."""
        return median_kappa(n, b).value if equal else None

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Return the coefficients of the median; see the base class."""
        return geometric_median_weights(updates.centred.gram, updates.data_weights, self.eps)
