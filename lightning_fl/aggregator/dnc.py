"""DnC, divide and conquer: drop what stands out along the main direction of randomly drawn coordinates.

Virat Shejwalkar, Amir Houmansadr. Manipulating the Byzantine: Optimizing Model Poisoning Attacks and Defenses for
Federated Learning. NDSS 2021, Algorithm 2.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Weighting
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.shares import floored
from lightning_fl.updates.decomposition import eigh
from lightning_fl.updates.finite import finite_rows, still_tolerated
from lightning_fl.updates.updates import Updates


def dnc_scores(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, " n"]:
    """Score rows by s_i = <x_i - mu, v>^2 less what all have in common, from their inner products; see `dnc_weights`.

    With a_i = <x_i, v>, s_i = (a_i - mean a)^2 = a_i (a_i - 2 mean a) + constant: about an origin in the middle of the
    rows, the scores keep their digits beside a row of 1e30, which moves the mean.

    Args:
        gram: Finite inner products about the middle of the rows (see `Updates.centred`), in the coordinates drawn.

    Returns:
        Scores in the order of s_i, up to a positive factor and a constant.
    """
    means = gram.mean(1)
    covariance = gram - means[:, None] - means + means.mean()  # <x_i - mu, x_j - mu>
    direction = eigh(covariance).eigenvectors[:, -1]  # v = sum_j direction_j (x_j - mu)
    along = gram @ (direction - direction.mean())
    return along * (along - 2 * along.mean())


def dnc_weights(grams: Iterable[Float64[Tensor, "n n"]], n_dropped: int) -> Float64[Tensor, " n"]:
    """Weigh finite rows equally that are never among the n_dropped of largest score; see `Dnc`.

    Args:
        grams: For each iteration, what `dnc_scores` takes.
        n_dropped: floor(c f), below n.
    """
    good = torch.stack([_keep(dnc_scores(gram), n_dropped) for gram in grams]).sum(0)
    kept = (good == good.max()).double()
    return kept / kept.sum()


def _keep(scores: Tensor, n_dropped: int) -> Tensor:
    kept = torch.zeros_like(scores, dtype=torch.int64)
    kept[scores.argsort(stable=True)[: len(scores) - n_dropped]] = 1
    return kept


def divide_and_conquer_weights(
    updates: Updates, f: int, coordinates: Sequence[Int64[Tensor, " _"]], c: float = 1.0
) -> Float64[Tensor, " n"]:
    """Weigh the updates that no iteration drops; see `Dnc`.

    Args:
        updates: The round.
        f: Byzantine clients tolerated.
        coordinates: The coordinates drawn for each iteration, one or more.
        c: Filtering fraction.
    """
    rows = finite_rows(updates.squares, "dnc")
    dropped = floored(c, still_tolerated(f, updates.n, len(rows)))
    grams = (updates.columns(index).centred.gram[rows][:, rows] for index in coordinates)
    return updates.squares.new_zeros(updates.n).index_put((rows,), dnc_weights(grams, dropped))


class Dnc(Weighting):
    """Average the updates that do not stand out in randomly drawn coordinates (Algorithm 2).

    An iteration looks at some coordinates: mu is the mean there, v the top right singular vector of the matrix with
    rows x_i - mu, s_i = <x_i - mu, v>^2; it drops the floor(c f) updates of largest s_i.  The result is the mean of
    those that are good in every iteration.

    Args:
        f: Byzantine clients tolerated, 0 <= f < n and c f < n.
        c: Filtering fraction, > 0.
        n_iterations: How often coordinates are drawn, at least 1.
        n_coordinates: b, how many are drawn (all, where the model has fewer), at least 1.

    Note:
        Where no update is good in every iteration, which the paper leaves open, those good most often are averaged.  An
        update with NaN or inf anywhere is left out and counts among the f.  Where the largest variance is that of
        several directions, v is whichever the eigensolver returns.  Large updates hide each other: mu and v follow the
        largest, and a smaller one, in another direction or beside it, may score least of all, in every iteration.

    The mean is 3.5; the last row is farthest from it:

    >>> Dnc(f=1)(torch.tensor([[0.0], [2.0], [3.0], [9.0]])).round(decimals=4)
    tensor([1.6667])
    """

    moves_with = ("shift", "scale")  # it draws coordinates
    searches = True

    def __init__(
        self,
        f: NonNegativeInt,
        c: PositiveFloat = 1.0,
        n_iterations: PositiveInt = 1,
        n_coordinates: PositiveInt = 10_000,
    ):
        self.f = f
        self.c = c
        self.n_iterations = n_iterations
        self.n_coordinates = n_coordinates

    def least_n(self, n_classes: int) -> int:
        """More than f and than c f; see the base class."""
        return max(self.f, floored(self.c, self.f)) + 1

    def check(self, n: int, n_classes: int) -> None:
        """Check f and c; see the base class."""
        f, c = self.f, self.c
        if not (f < n and c * f < n):
            raise SettingError(f"dnc needs 0 <= f < n, c > 0 and c f < n, got n={n}, f={f} and c={c}; lower c or f.")

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f and c with what dropping f rows takes; see the base class."""
        if n <= 2 * self.f:
            return f"no guarantee: needs n >= 2f + 1, has {n} updates for f = {self.f}"
        dropped = floored(self.c, self.f)
        if dropped < self.f:
            return f"no guarantee: drops {dropped} updates per iteration for f = {self.f}"
        return None if self.f < 2 else "no guarantee: beside one large update a smaller one may pass"

    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh one round; see the base class."""
        draw = server.generator("dnc")
        coordinates = [
            torch.randperm(updates.d, generator=draw)[: self.n_coordinates].sort().values.to(updates.device)
            for _ in range(self.n_iterations)
        ]
        return divide_and_conquer_weights(updates, self.f, coordinates, self.c)
