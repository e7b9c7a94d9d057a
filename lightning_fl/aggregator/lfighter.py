"""LFighter: keep one of two clusters of what updates do to the two classes whose outputs change most.

Najeeb Moharram Jebreel, Josep Domingo-Ferrer, David Sánchez, Alberto Blanco-Justicia. LFighter: Defending against the
Label-flipping Attack in Federated Learning. Neural Networks 170, 2024.
"""

from jaxtyping import Bool, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.clusters import cosine_distances, two_means
from lightning_fl.aggregator.mixing import finite_shares
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.columns import Layer, Layout
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates


def output_layer(layout: Layout, n_classes: int) -> tuple[Layer, Layer | None, int]:
    """Find the last matrix, its bias where that comes next, and how many rows it has.

    Updates that are one tensor are all matrix, of a single row where it is no matrix.

    Raises:
        SettingError: If there is none with a row for each class.
    """
    if len(layout) == 1 and layout[0].dimensions != 2:
        return layout[0], None, 1
    place = max((i for i, layer in enumerate(layout) if layer.dimensions == 2), default=None)
    if place is None or layout[place].size % n_classes:
        raise SettingError(
            f"lfighter looks at the matrix before the outputs, one row for each of {n_classes} classes, got "
            f"{[layer.name for layer in layout][-2:]} as the last tensors; train it, or take another rule."
        )
    bias = layout[place + 1] if place + 1 < len(layout) else None
    return layout[place], bias if bias is not None and bias.module == layout[place].module else None, n_classes


def less_alike(points: Float64[Tensor, "m p"]) -> Bool[Tensor, " m"]:
    """Mark the cluster whose members are the less alike: attackers do the same, honest clients differ.

    Of a cluster of m_k, (m_k / m) (1 - mean_i min_j cos(x_i, x_j)), cosines above 0 counting as 0.

    >>> import torch
    >>> less_alike(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [-9.0, -9.0]]).double())
    tensor([ True,  True,  True, False])
    """
    second = two_means(points)
    cosines = 1 - cosine_distances(points @ points.T)

    def dissimilarity(cluster: Bool[Tensor, " m"]) -> Float64[Tensor, ""]:
        least = cosines[cluster][:, cluster].amin(1).clamp(max=0)
        return cluster.double().mean() * (1 - least.mean())

    if not second.any():
        return ~second
    return second if dissimilarity(~second) < dissimilarity(second) else ~second


class Lfighter(Aggregator):
    """Average one of two clusters of the updates' rows of the output matrix, for the two classes that change most.

    The classes are those of the largest sum over clients of ||W_i[c]|| + |b_i[c]|, the update's row of the output
    matrix and its bias.  By these two rows updates are parted in two clusters (2-means).  The one whose members are the
    less alike stays: with m_k of m updates, the larger (m_k / m) (1 - mean_i min_j cos(x_i, x_j)), where cosines above
    0 count as 0, as in the authors' code.

    Note:
        It is made for attackers who flip labels of one class into another; of any other attack nothing bounds its
        result, nor outside the output matrix.  The authors' 2-means starts at random, here from every update and the
        one farthest from it.  A row of zeros has cosine 0 with all.  Of clusters equally alike that of the first update
        stays.  Those kept count by their data weights.  An update with NaN or inf is left out.  With one or two classes
        the whole matrix counts, of rows without a model the whole row.
    """

    needs_layout = True
    robust = False  # see the note
    moves_with = ("scale",)
    searches = True

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        rows = finite_rows(updates.squares, "lfighter")
        matrix, bias, c = output_layer(updates.layout, server.n_classes)
        part = updates.columns(slice(matrix.start, (bias or matrix).stop)).rows[rows].double().cpu()
        by_class = part[:, : matrix.size].unflatten(1, (c, -1))
        change = by_class.norm(dim=2).sum(0)
        if bias is not None:
            change += part[:, matrix.size :].abs().sum(0)
        kept = rows[less_alike(by_class[:, change.topk(min(2, c)).indices].flatten(1)).to(rows.device)]
        shares = finite_shares(updates.data_weights, kept)
        weights = shares / shares.sum()
        return Aggregation(updates.combination(weights), weights, {"kept": len(kept)})
