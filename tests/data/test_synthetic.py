"""Gaussian classes, drawn from a seed."""

import math

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.data.synthetic import Synthetic
from tests.data import making


def make(**changes):
    sizes = {"n_train": 10, "n_test": 5, "classes": 3, "features": 4, "separation": 4.0, "data_seed": 0}
    return making.make(Synthetic, **(sizes | changes))


@pytest.mark.parametrize("features", [1, 784])
def test_sizes_and_classes(features):
    train, test = make(features=features).load()
    assert train.inputs.shape == (10, features)
    assert train.targets.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert test.targets.tolist() == [0, 1, 2, 0, 1]
    assert train.inputs.dtype == torch.float32
    assert train.n_classes == 3


def test_classes_are_gaussians_of_unit_variance_around_their_means():
    train, test = make(n_train=60_000, n_test=60_000, separation=7.0).load()
    means = []
    for split in (train, test):
        classes = [split.inputs[split.targets == z] for z in range(3)]
        means.append(torch.stack([rows.mean(0) for rows in classes]))
        for rows, mean in zip(classes, means[-1], strict=True):
            # 20,000 rows: a mean is off by 0.007, a covariance by 0.01 (one standard deviation)
            assert abs(mean.norm().item() - 7) < 0.05
            torch.testing.assert_close(rows.T.cov(), torch.eye(4), atol=0.05, rtol=0)
            assert ((rows - mean).abs() < 1).float().mean().item() == pytest.approx(0.6827, abs=0.01)
    torch.testing.assert_close(means[0], means[1], atol=0.05, rtol=0)
    assert torch.pdist(means[0]).min() > 0.5
    assert not torch.equal(train.inputs, test.inputs)


def test_the_error_rate_that_the_docstring_gives():
    _, test = make(classes=2, features=2000, n_test=20_000, separation=2.0).load()
    means = torch.stack([test.inputs[test.targets == z].mean(0) for z in range(2)])
    nearest = torch.cdist(test.inputs, means, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    phi = 0.5 * math.erfc(2 / math.sqrt(2) / math.sqrt(2))  # Phi(-s / sqrt(2)), s = 2: 7.9 %
    # Means that are estimated from the samples they judge flatter a little.
    assert (nearest != test.targets).float().mean().item() == pytest.approx(phi, abs=0.03)


def test_seeds():
    first, again, other = (make(data_seed=seed).load() for seed in (0, 0, 1))
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].inputs, other[0].inputs)
    # The samples do not depend on the run's seed, nor one split on the other's size.
    changed = make(seed=5, partition_seed=5, n_train=500).load()
    assert torch.equal(changed[1].inputs, first[1].inputs)
    before = torch.get_rng_state()
    make().load()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({"classes": 0}, "classes >= 1, got 0"),
        ({"features": 0}, "features >= 1, got 0"),
        ({"n_train": 2}, "n_train and n_test of at least classes="),
        ({"n_test": 2}, "n_train and n_test of at least classes="),
    ],
)
def test_settings_out_of_range(changes, needs):
    with pytest.raises(SettingError, match=f"synthetic needs {needs}"):
        make(**changes)
