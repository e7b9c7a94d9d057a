import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.contract import world
from tests.aggregator import reference


def test_literal():
    """By hand.  Weights not normalised: (9, 5); ignored: (2, 3)."""
    x = torch.tensor([[3.0, 1.0], [1.0, 5.0]])
    assert Average()(x).tolist() == [2.0, 3.0]
    assert Average()(x, weights=torch.tensor([3.0, 1.0])).tolist() == [2.5, 2.0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_broken_row_breaks_it_and_one_of_weight_0_does_not(bad):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [bad, 0.0]])
    assert not Average()(x)[0].isfinite()
    assert Average()(x, weights=torch.tensor([1.0, 1.0, 0.0])).tolist() == [2.0, 3.0]


def test_the_class_averages_by_data_weights():
    updates = Updates(world.honest_updates(), torch.arange(1.0, 13.0))
    aggregation = Average().aggregate(updates, world.oracle())
    assert torch.equal(aggregation.weights, updates.data_weights)
    np.testing.assert_allclose(
        aggregation.update.numpy(), reference.average(updates.rows.numpy(), range(1, 13)), rtol=1e-5
    )
    assert not aggregation.diagnostics


@pytest.mark.parametrize(("n", "n_classes"), [(1, 1), (1, 10), (115, 10)])
def test_any_number_of_updates_will_do(n, n_classes):
    Average().check(n, n_classes)
    torch.testing.assert_close(Average()(torch.ones(n, 2)), torch.ones(2))


@pytest.mark.parametrize(
    ("x", "weights", "message"),
    [
        (torch.zeros(0, 3), None, r"updates must be a matrix \(n, d\)"),
        (torch.zeros(3), None, r"updates must be a matrix \(n, d\)"),
        (torch.ones(2, 3, dtype=torch.int64), None, "updates must be floating point"),
        (torch.ones(2, 3), torch.ones(3), "weights must be 2 finite numbers >= 0 with a positive sum"),
        (torch.ones(2, 3), torch.tensor([1.0, -1.0]), "weights must be 2 finite numbers >= 0"),
        (torch.ones(2, 3), torch.tensor([1.0, torch.nan]), "weights must be 2 finite numbers >= 0"),
        (torch.ones(2, 3), torch.zeros(2), "with a positive sum"),
    ],
)
def test_refuses_what_is_no_matrix_or_no_weights(x, weights, message):
    with pytest.raises(SettingError, match=message):
        Average()(x, weights=weights)
