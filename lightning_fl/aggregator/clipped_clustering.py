"""Clipped clustering: clip to the median of all norms seen so far, and average the larger of two clusters.

Shenghui Li, Edith C.-H. Ngai, Thiemo Voigt. An Experimental Study of Byzantine-Robust Aggregation Schemes in Federated
Learning. IEEE Transactions on Big Data, 2023.  The authors' simulator is Blades.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation
from lightning_fl.aggregator.clusters import Linkage, cosine_distances, larger_cluster
from lightning_fl.aggregator.medians import middle
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.remembering import Remembering
from lightning_fl.aggregator.trust import equal_shares
from lightning_fl.ranges import PositiveFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates


def clipped_clustering_weights(
    gram: Float64[Tensor, "n n"],
    norms: Float64[Tensor, " m"],
    linkage: Linkage = "average",
    max_radius: float = 1e5,
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, ""]]:
    """Weigh the rows from their inner products; see `ClippedClustering`.

    Returns:
        The weights, and tau.
    """
    rows = finite_rows(gram.diagonal(), "clipped_clustering")
    lengths = gram.diagonal()[rows].sqrt()
    radius = middle(torch.cat([norms.to(lengths), lengths])).clamp(max=max_radius)
    kept = larger_cluster(cosine_distances(gram[rows][:, rows]), linkage)
    weights = gram.new_zeros(len(gram))
    weights[rows[kept]] = clipping_scales(lengths[kept], radius) / len(kept)
    return weights, radius


class ClippedClustering(Remembering):
    """Average the larger of two clusters by cosine, after clipping to tau.

    tau = min(median of all norms so far, max_radius), this round's included.  Agglomerative clustering on 1 - cosine
    ends at two clusters; the result is the mean of x_i min(1, tau / ||x_i||) over the larger one.

    It remembers the norms of all rounds.  Its weights undo lengths beyond tau; its trust is an equal share for those in
    the cluster.

    Args:
        linkage: Distance of two clusters: the mean ("average") or the least ("single") over pairs.
        max_radius: Largest tau, > 0 (the authors': 1e5).

    Note:
        A zero update has distance 1 to every other.  Of clusters of equal size, that of the first update counts (the
        authors' code takes the one that is labelled 0).  Fewer than three updates are one cluster.  An update with NaN
        or inf is left out, and so is its norm.  The rule tolerates less than half of the clients; clients of two kinds
        of labels are cut in half.

    The median norm is 5, and the last update points elsewhere:

    >>> ClippedClustering()(torch.tensor([[0.0, 1.0], [3.0, 4.0], [6.0, 8.0], [0.0, 1.0], [-8.0, -8.0]]))
    tensor([1.5000, 2.5000])
    """

    moves_with = ("scale", "rotation")

    def __init__(self, linkage: Linkage = "average", max_radius: PositiveFloat = 1e5):
        self.linkage = linkage
        self.max_radius = max_radius

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        norms = self._remembered.get("norms", torch.zeros(0, dtype=torch.float64))
        weights, radius = clipped_clustering_weights(updates.gram, norms, self.linkage, self.max_radius)
        lengths = updates.gram.diagonal().sqrt().cpu()
        self._last = {"norms": torch.cat([norms, lengths[lengths.isfinite()]])}
        return Aggregation(updates.combination(weights), weights, {"radius": radius.item()}, equal_shares(weights))
