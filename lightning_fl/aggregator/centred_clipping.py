"""Centred clipping: move from the last round's result towards every update, but by no more than a radius each.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Learning from History for Byzantine Robust Optimization. ICML 2021.
arXiv:2012.10333.
Sequential: Kerem Ozfatura, Emre Ozfatura, Alptekin Kupcu, Deniz Gunduz. Byzantines Can Also Learn from History: Fall of
Centered Clipping in Federated Learning. IEEE Transactions on Information Forensics and Security 19, 2024.
arXiv:2208.09894.

The centre is a combination of the rows and of where it started, with coefficients of sum 1.  So all distances follow
from one Gram matrix of the rows and the start, about any origin.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation
from lightning_fl.aggregator.draw_order import draw_order
from lightning_fl.aggregator.remembering import Remembering
from lightning_fl.errors import SettingError
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates


def centred_clipping_weights(
    gram: Float64[Tensor, "m m"], radius: float, n_iterations: int = 1
) -> tuple[Float64[Tensor, " m"], Float64[Tensor, " n"]]:
    """Find the coefficients of the centre from inner products; see `CentredClipping`.

    Args:
        gram: Inner products of n client rows followed by the start, about any origin.
        radius: tau.
        n_iterations: L.

    Returns:
        Coefficients of all rows, with sum 1, and the last step's factors min(1, tau / ||x_i - v||).
    """
    inner, finite = _known(gram, "centred_clipping")
    centre = torch.zeros_like(inner[0])
    centre[-1] = 1
    for _ in range(n_iterations):
        factors = _factors(inner, centre, radius) * finite
        centre = centre * (1 - factors.mean())
        centre[:-1] += factors / len(factors)
    return centre, factors


def sequential_centred_clipping_weights(
    gram: Float64[Tensor, "m m"], buckets: Sequence[Tensor], radius: float, average_first: bool = False
) -> tuple[Float64[Tensor, " m"], Float64[Tensor, " n"]]:
    """Find the coefficients of the centre from inner products; see `SequentialCentredClipping`.

    Args:
        gram: Inner products of n client rows followed by the start, about any origin.
        buckets: Numbers of the updates in each bucket, in order.
        radius: tau.
        average_first: Whether a bucket's mean is clipped instead of its differences.

    Returns:
        Coefficients of all rows, with sum 1, and by which factor each row's step was shortened.
    """
    inner, finite = _known(gram, "sequential_centred_clipping")
    centre = torch.zeros_like(inner[0])
    centre[-1] = 1
    factors = torch.zeros_like(centre[:-1])
    for bucket in buckets:
        present = finite[bucket].to(centre)
        if average_first:
            step = torch.zeros_like(centre).index_add(0, bucket, present) - present.sum() * centre
            length = (step @ inner @ step).clamp(min=0).sqrt() / len(bucket)
            factors[bucket] = present * _shorten(length, radius)
        else:
            factors[bucket] = present * _factors(inner, centre, radius)[bucket]
        shares = factors[bucket] / len(bucket)
        centre = (centre * (1 - shares.sum())).index_add(0, bucket, shares)
    return centre, factors


def _known(gram: Tensor, rule: str) -> tuple[Tensor, Tensor]:
    """Inner products without NaN and inf, and which client rows are finite."""
    finite_rows(gram.diagonal()[:-1], rule)
    finite = gram.diagonal().isfinite()
    return gram.masked_fill(~(finite & finite[:, None]), 0), finite[:-1]


def _factors(inner: Tensor, centre: Tensor, radius: float) -> Tensor:
    """min(1, tau / ||x_i - v||) for the client rows."""
    products = inner @ centre
    squares = inner.diagonal() - 2 * products + centre @ products
    return _shorten(squares[:-1].clamp(min=0).sqrt(), radius)


def _shorten(length: Tensor, radius: float) -> Tensor:
    return (radius / length).clamp(max=1)  # 1 at length 0


def _combine(updates: Updates, start: Tensor, coefficients: Tensor) -> Tensor:
    return updates.combine(coefficients[:-1]) + coefficients[-1].to(start.dtype) * start


def similarity_buckets(
    similarity: Float[Tensor, " n"] | None, n_clusters: int, order: Int64[Tensor, " n"]
) -> list[Int64[Tensor, " _"]]:
    """Cut the rows into ceil(n / n_clusters) buckets for `SequentialCentredClipping`, one row of each cluster.

    Args:
        similarity: Cosine of each row with the last round's result.  Sorted by it and cut into clusters of equal size
            (up to 1, larger ones first); bucket k takes the k-th row of each cluster.  None: random buckets, as in the
            first round.
        n_clusters: c, at least 1.
        order: Row numbers in random order, which shuffles the clusters.

    Returns:
        Row numbers of each bucket.

    >>> order = torch.tensor([4, 1, 0, 3, 2])
    >>> similarity_buckets(torch.tensor([0.9, 0.8, -1.0, 0.1, 0.2]), 2, order)
    [tensor([4, 1]), tensor([3, 0]), tensor([2])]
    """
    if similarity is None:
        return list(order.split(n_clusters))
    clusters = order[similarity[order].argsort(stable=True)].tensor_split(n_clusters)
    rank = order.argsort()
    shuffled = [cluster[rank[cluster].argsort()] for cluster in clusters]
    return [torch.cat([cluster[k : k + 1] for cluster in shuffled]) for k in range(len(shuffled[0]))]


class _FromTheLast(Remembering):
    """Starts at what the last round's call gave; ``aggregator/clipped`` is the share of differences shortened."""

    def result(self, updates: Updates, start: Tensor, found: tuple[Tensor, Tensor]) -> Aggregation:
        """Combine and keep the centre."""
        coefficients, factors = found
        update = _combine(updates, start, coefficients)
        self._last = {"centre": update.clone()}  # a server's optimizer may write into the update
        clipped = {"clipped": float(((factors > 0) & (factors < 1)).double().mean())}
        return Aggregation(update, coefficients[:-1], diagnostics=clipped, trust=factors / factors.sum())

    def start(self, updates: Updates, server: ServerOracle) -> tuple[Tensor, Tensor]:
        """The last round's result, 0 in the first round, and inner products of the rows and it."""
        centre = self._remembered.get("centre")
        if centre is None:
            return torch.zeros(updates.d, dtype=updates.dtype, device=updates.device), updates.centred.with_zero
        if len(centre) != updates.d:
            raise SettingError(
                f"centred_clipping remembers an update of length {len(centre)}, got updates of length {updates.d}; "
                f"use a new rule for another model."
            )
        centre = centre.to(updates.device)
        return centre, updates.centred_with(centre[None]).gram


class CentredClipping(_FromTheLast):
    """From the last round's result, 0 in the first, repeat v <- v + (1/n) sum_i (x_i - v) min(1, tau / ||x_i - v||).

    Its weights are the factors of the updates as sent; what is missing to a sum of 1 is the last round's result.  Its
    trust is a client's share of the factors by which differences are clipped.

    Args:
        radius: tau, the longest step towards one update, > 0 in the unit of the updates.  The authors take
            10 / (1 - beta) for the momentum m = beta m + g, that is 10 for m = beta m + (1 - beta) g; byzfl 100.
        n_iterations: L, at least 1.

    Note:
        An update with NaN or inf moves nothing, and still counts in n.

    >>> CentredClipping(radius=1.0)(torch.tensor([[0.5], [3.0], [40.0]]))
    tensor([0.8333])
    """

    moves_with = ("rotation",)

    def __init__(self, radius: PositiveFloat = 10.0, n_iterations: PositiveInt = 1):
        self.radius = radius
        self.n_iterations = n_iterations

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        centre, gram = self.start(updates, server)
        return self.result(updates, centre, centred_clipping_weights(gram, self.radius, self.n_iterations))


class SequentialCentredClipping(_FromTheLast):
    """Go through buckets of updates and step, for each, by the mean of the clipped differences from the centre so far.

    The first centre is the last round's result, 0 in the first round.  A bucket holds a client of each of c clusters by
    cosine with that result; buckets of the first round are random (`similarity_buckets`).  Weights and trust are those
    of `CentredClipping`.

    Args:
        radius: tau, the longest step of a bucket, > 0 in the unit of the updates: B buckets move the centre by up to
            B tau.
        n_clusters: c, the size of a bucket, 1 to n.
        average_first: Whether a bucket's mean is clipped instead of its differences.

    Note:
        An update with NaN or inf moves nothing, and still counts in its bucket.

    Three buckets of one update each move v by 1 each:

    >>> SequentialCentredClipping(radius=1.0, n_clusters=1)(torch.tensor([[9.0], [9.0], [40.0]]))
    tensor([3.])
    """

    least = "n_clusters"
    searches = True
    moves_with = ("rotation",)

    def __init__(self, radius: PositiveFloat = 1.0, n_clusters: PositiveInt = 3, average_first: bool = False):
        self.radius = radius
        self.n_clusters = n_clusters
        self.average_first = average_first

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        centre, gram = self.start(updates, server)
        order = draw_order(updates, server.derive_seed("buckets"))
        similarity = None
        if centre.any():
            lengths = (updates.squares * centre.double().square().sum().cpu()).sqrt()
            similarity = (updates.products(centre) / lengths).nan_to_num(nan=0.0)  # 0: a row without direction
        buckets = similarity_buckets(similarity, self.n_clusters, order)
        found = sequential_centred_clipping_weights(gram, buckets, self.radius, self.average_first)
        return self.result(updates, centre, found)
