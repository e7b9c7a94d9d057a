import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.median import Median
from lightning_fl.contract import conf, world
from lightning_fl.updates.mixed import mix


def clip(x, radius):
    """What the inner rule is asked about."""
    rows = Updates(x)
    return mix(rows, Clipping(Average(), radius).mix(rows, world.oracle())[0]).rows


X = [[0.0, 0.0], [1.0, 0.5], [0.2, 2.0], [2.0, 1.3], [1.1, 3.0], [0.7, 1.1], [10.0, -9.0]]


def test_literal():
    """E3 and, by conf, E15."""
    x = torch.tensor(X, dtype=torch.float64)
    clipped = clip(x, 2.0)
    expected = [
        [0.0, 0.0],
        [1.0, 0.5],
        [0.1990074380, 1.9900743804],
        [1.6768872326, 1.0899767012],
        [0.6885092983, 1.8777526318],
        [0.7, 1.1],
        [1.4865882925, -1.3379294632],
    ]
    np.testing.assert_allclose(clipped.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(clipped.mean(0).numpy(), [0.8215703231, 0.7456963214], atol=1e-9)
    for name, mean in [("clipping", [0.8215703231, 0.7456963214]), ("norm_bounding", [1.0232351980, 0.8156763933])]:
        aggregation = conf.make("aggregator", name).aggregate(Updates(x), world.oracle())
        np.testing.assert_allclose(aggregation.update.numpy(), mean, atol=1e-9)
        assert aggregation.trust.tolist() == pytest.approx([1 / 7] * 7)


def test_says_how_many_are_longer():
    """Lengths are 0, 1.12, 2.01, 2.39, 3.20, 1.30 and 13.5."""
    rule = Clipping(Clipping(Average(), 5.0), 2.0)
    assert rule.aggregate(Updates(torch.tensor(X)), world.oracle()).diagnostics == {"clipped": 4 / 7}
    for rule.radius in (20.0, 1e200, float("inf")):
        assert rule.aggregate(Updates(torch.tensor(X)), world.oracle()).diagnostics == {"clipped": 0.0}


def test_the_average_is_by_data_weights():
    x = torch.tensor([[4.0], [1.0]])
    aggregation = Clipping(Average(), 2.0, 0.0).aggregate(Updates(x, torch.tensor([3.0, 1.0])), world.oracle())
    assert aggregation.update.tolist() == [1.75]
    assert aggregation.weights.tolist() == [0.375, 0.25]
    assert aggregation.trust.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_is_left_out(bad):
    x = torch.tensor([[4.0, 0.0], [bad, 0.0], [0.0, 1e30]])
    aggregation = Clipping(Average(), 2.0, 0.0).aggregate(Updates(x), world.oracle())
    assert aggregation.update.tolist() == [1, 1]
    assert aggregation.weights[1] == 0
    assert not clip(x, 2.0)[1].isfinite().all()
    only = torch.tensor([0.0, 1.0, 0.0])  # all data lies with it
    assert Clipping(Average(), 2.0, 0.0).aggregate(Updates(x, only), world.oracle()).update.tolist() == [1, 1]
    assert Clipping(Median("mean"), 2.0, 0.0).aggregate(Updates(x), world.oracle()).update.tolist() == [1, 1]


def test_noise_has_its_deviation_and_depends_on_the_round_alone():
    rows, server = torch.zeros(3, 20_000), world.oracle()
    first, second = (Clipping(Average(), 2.0, 0.5).aggregate(Updates(rows), server).update for _ in range(2))
    assert torch.equal(first, second)
    later = Clipping(Average(), 2.0, 0.5).aggregate(Updates(rows), world.oracle(index=1)).update
    assert abs(torch.corrcoef(torch.stack([first, later]))[0, 1]) < 0.03
    assert first.std().item() == pytest.approx(0.5, rel=0.03)
    assert abs(first.mean().item()) < 0.02
