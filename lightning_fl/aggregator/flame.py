"""FLAME: admit the majority of models that point alike, clip to the median length, add noise.

Thien Duc Nguyen, Phillip Rieger, Huili Chen, Hossein Yalame, Helen Möllering, Hossein Fereidooni, Samuel Marchal,
Markus Miettinen, Azalia Mirhoseini, Shaza Zeitouni, Farinaz Koushanfar, Ahmad-Reza Sadeghi, Thomas Schneider. FLAME:
Taming Backdoors in Federated Learning. USENIX Security 2022. arXiv:2101.02281.
"""

from math import inf

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.clusters import agglomerate
from lightning_fl.aggregator.medians import middle
from lightning_fl.aggregator.mixing import clipping_scales
from lightning_fl.aggregator.trust import equal_shares
from lightning_fl.errors import DivergedError, SettingError
from lightning_fl.ranges import NonNegativeFloat
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.products import Centred, squared_distances
from lightning_fl.updates.updates import Combination, Updates


def model_distances(
    distances: Float64[Tensor, "n n"],
    gram: Float64[Tensor, "n n"],
    products: Float64[Tensor, " n"],
    square: Float64[Tensor, ""],
    learning_rate: float,
) -> Float64[Tensor, "n n"]:
    """Compute 1 - cosine between the models W_i = w - eta x_i, 1 where one of them is zero.

    Late in training the models differ by little, so it is taken from differences that are free of ||w||:
    1 - cos = (||W_i - W_j||^2 - (||W_i|| - ||W_j||)^2) / (2 ||W_i|| ||W_j||).  Where one model is much longer than the
    other, these two cancel, and <W_i, W_j> does not.

    Args:
        distances: Finite ||x_i - x_j||^2.
        gram: Finite <x_i, x_j>.
        products: <w, x_i>.
        square: ||w||^2.
        learning_rate: eta > 0.
    """
    growth = learning_rate * (learning_rate * gram.diagonal() - 2 * products)  # ||W_i||^2 - ||w||^2
    lengths = (square + growth).clamp(min=0).sqrt()
    both = lengths[:, None] * lengths
    gaps = (growth[:, None] - growth) / (lengths[:, None] + lengths)
    apart = learning_rate**2 * distances
    inner = square - learning_rate * (products[:, None] + products) + learning_rate**2 * gram
    away = torch.where(apart <= both, (apart - gaps**2) / (2 * both), 1 - inner / both)
    return away.clamp(min=0).masked_fill(both == 0, 1).fill_diagonal_(0)


def majority_cluster(distances: Float64[Tensor, "n n"]) -> Int64[Tensor, " m"]:
    """Find the first cluster of more than half of the rows, as rows are joined in the order of their distances.

    That is what HDBSCAN with min_cluster_size = floor(n/2) + 1, min_samples = 1 and allow_single_cluster returns.
    """
    n = len(distances)
    for label in agglomerate(distances, "single"):
        sizes = label.bincount(minlength=n)
        if 2 * sizes.max() > n:
            return (label == sizes.argmax()).nonzero().flatten()
    return torch.arange(n, device=distances.device)  # of a single row


def flame_weights(centred: Centred, learning_rate: float) -> tuple[Float64[Tensor, " n"], Float64[Tensor, ""]]:
    """Weigh n client rows from inner products about the middle of them, the model's row w last; see `Flame`.

    Returns:
        The weights, and the median norm.

    Raises:
        SettingError: If the rate is not a finite number above 0.
        DivergedError: If the model, or every client's row, is not finite.
    """
    gram, n = centred.gram, len(centred.gram) - 1
    if not 0 < learning_rate < inf:
        raise SettingError(f"flame needs a finite learning rate above 0, got {learning_rate}; change the schedule.")
    if not gram[n, n].isfinite():
        raise DivergedError("flame needs a finite model, got NaN or inf; the model may have diverged.")
    rows = finite_rows(gram.diagonal()[:n], "flame")
    offset = centred.offset + centred.square / 2
    about_zero = gram + offset[:, None] + offset  # <x_i, x_j>, <w, x_i> and ||w||^2
    inner = about_zero[rows][:, rows]
    apart = model_distances(
        squared_distances(gram[rows][:, rows]), inner, about_zero[rows, n], about_zero[n, n], learning_rate
    )
    norms = inner.diagonal().clamp(min=0).sqrt()
    radius, admitted = middle(norms), majority_cluster(apart)
    weights = gram.new_zeros(n)
    weights[rows[admitted]] = clipping_scales(norms[admitted], radius) / len(admitted)
    return weights, radius


class Flame(Aggregator):
    """Aggregate by FLAME the models that the clients have (Algorithm 1).

    Cluster the models W_i = w - eta x_i by the cosine distance and admit the cluster of more than half of them; eta is
    the rate of their uploads.  With S the median of all ||W_i - w||, the new model is w plus the mean over the admitted
    of (W_i - w) min(1, S / ||W_i - w||), plus Gaussian noise of standard deviation lambda S in every parameter.
    Divided by -eta, that is an update.

    Its weights undo lengths beyond the median; its trust is an equal share for those admitted.

    Args:
        noise: lambda >= 0; the paper's is sqrt(2 ln(1.25 / delta)) / epsilon, 0.001 for images.

    Note:
        The cluster is the first of more than half of the models as they are joined by single linkage, which HDBSCAN
        with the paper's settings amounts to.  Of pairs of clusters equally near the first by their first rows is
        joined; of parallel updates rounding decides which are nearer.  The median of an even number of norms is the
        mean of the middle two.  An update with NaN or inf is left out of everything.
    """

    needs_model = True
    moves_with = ()

    def __init__(self, noise: NonNegativeFloat = 0.0):
        self.noise = noise

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        weights, radius = flame_weights(updates.centred_with(server.parameters[None]), server.upload_rate)
        answer: Tensor | Combination = updates.combination(weights)
        if self.noise:
            update, draw = updates.combine(weights), server.generator("flame")
            drawn = torch.randn(updates.d, generator=draw, dtype=update.dtype, device=draw.device)
            answer = update + self.noise * radius.to(update) * drawn.to(update.device)
        diagnostics = {"admitted": int((weights > 0).sum()), "radius": radius.item()}
        return Aggregation(answer, weights, diagnostics, equal_shares(weights))
