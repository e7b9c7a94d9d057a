"""Clusters of updates: joined one by one, or two around means."""

from collections.abc import Iterator
from math import inf
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from lightning_fl.updates.products import SAME

Linkage = Literal["average", "single"]

# Lloyd's steps at most; they end by themselves after a few.
_STEPS = 100
# How far, relatively, rounding alone can separate equal distances.
_ROUNDING = 2.0**-40


def cosine_distances(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """Compute 1 - cosine between rows from finite inner products; 1 for a zero row.

    >>> cosine_distances(torch.tensor([[4.0, -6.0, 0.0], [-6.0, 9.0, 0.0], [0.0, 0.0, 0.0]]).double())
    tensor([[0., 2., 1.],
            [2., 0., 1.],
            [1., 1., 0.]], dtype=torch.float64)
    """
    norms = gram.diagonal().sqrt()
    lengths = norms.masked_fill(norms == 0, 1)
    distances = 1 - gram / lengths[:, None] / lengths
    return distances.masked_fill(distances <= SAME, 0).fill_diagonal_(0)


def agglomerate(distances: Float64[Tensor, "n n"], linkage: Linkage) -> Iterator[Int64[Tensor, " n"]]:
    """Join the two nearest clusters, from single rows on, until one is left.

    Args:
        distances: Symmetric.
        linkage: Distance of two clusters: the mean ("average") or the least ("single") over pairs of their rows.

    Yields:
        After each of the n - 1 joins, for every row the first row of its cluster.  Of pairs of clusters equally near,
        up to rounding, the one that holds most rows is joined, and of these the first by their first rows: so rows of
        zeros, which are equally near to all, decide nothing by their order.
    """
    n = len(distances)
    apart = distances.clone().fill_diagonal_(inf).cpu().numpy()
    sizes, label = np.ones(n), np.arange(n)
    for _ in range(n - 1):
        near = apart <= apart.min() * (1 + _ROUNDING)
        a, b = divmod(int((near * (sizes[:, None] + sizes)).argmax()), n)  # a < b, the first pair of the first row
        if linkage == "average":
            joined = (sizes[a] * apart[a] + sizes[b] * apart[b]) / (sizes[a] + sizes[b])
        else:
            joined = np.minimum(apart[a], apart[b])
        apart[a], apart[:, a] = joined, joined
        apart[b] = apart[:, b] = inf
        apart[a, a] = inf
        sizes[a] += sizes[b]
        label[label == b] = a
        yield torch.tensor(label, device=distances.device)


def larger_cluster(distances: Float64[Tensor, "n n"], linkage: Linkage = "average") -> Int64[Tensor, " m"]:
    """Find the rows of the larger of two clusters; of equal ones that of the first row, and all rows of n < 3."""
    n = len(distances)
    label = torch.zeros(n, dtype=torch.int64, device=distances.device)
    if n >= 3:
        *_, label, _ = agglomerate(distances, linkage)
    first = label == label[0]
    return (first if 2 * first.sum() >= n else ~first).nonzero().flatten()


def two_means(points: Float64[Tensor, "n p"]) -> Bool[Tensor, " n"]:
    """Part points into two clusters with little squared distance to their means; True: not in the first one's cluster.

    Lloyd's steps from every point and the one farthest from it; the best end counts.  Equal points are one cluster.

    >>> two_means(torch.tensor([[0.0], [1.0], [9.0]]).double())
    tensor([False, False,  True])
    """
    centred = points - points.mean(0)
    gram = centred @ centred.T
    squares = gram.diagonal()
    apart = squares[:, None] + squares - 2 * gram
    second = apart[apart.argmax(1)] < apart  # a row for each start
    for _ in range(_STEPS):
        parts = torch.stack([~second, second]).to(points)
        parts = torch.where(parts.sum(2, keepdim=True) > 0, parts, 1)  # of equal points
        shares = parts / parts.sum(2, keepdim=True)
        products = shares @ gram
        away = squares - 2 * products + (products * shares).sum(2, keepdim=True)  # squared distances to both means
        before, second = second, away[1] < away[0]
        if second.equal(before):
            break
    best = second[away.amin(0).sum(1).argmin()]
    return best ^ best[0]
