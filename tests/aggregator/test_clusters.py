import numpy as np
import pytest
import torch
from sklearn.cluster import AgglomerativeClustering

from lightning_fl.aggregator.clusters import agglomerate, cosine_distances, larger_cluster
from lightning_fl.updates.products import gram_matrix

LINKAGES = ["average", "single"]
N, D = 11, 6


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("seed", range(10))
def test_clusters_are_those_of_scikit_learn(seed, linkage):
    x = torch.randn(41, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[:15] += 2
    distances = cosine_distances(gram_matrix(x))
    labels = AgglomerativeClustering(2, metric="precomputed", linkage=linkage).fit_predict(distances.numpy())
    larger = np.flatnonzero(labels == np.bincount(labels).argmax())
    assert larger_cluster(distances, linkage).tolist() == larger.tolist()


def test_copies_are_at_distance_zero(draw):
    x = torch.randn(1, 1000, generator=draw) * torch.logspace(-20, 20, N)[:, None]
    assert not cosine_distances(gram_matrix(x.double())).any()


@pytest.mark.parametrize("linkage", ["average", "single"])
def test_of_pairs_equally_near_the_first_is_joined_however_they_are_rounded(linkage, draw):
    angles = torch.tensor([0.0, 30.0, 60.0], dtype=torch.float64).deg2rad()
    rows = torch.stack([angles.cos(), angles.sin(), torch.zeros_like(angles)], dim=1)
    for _ in range(20):
        turned = rows @ torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=draw)).Q
        first, _ = agglomerate(cosine_distances(turned @ turned.T), linkage)
        assert first.tolist() == [0, 0, 2]
