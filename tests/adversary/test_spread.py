import numpy as np
import pytest
import torch

from lightning_fl.adversary.spread import mean_and_std
from tests.adversary import reference


@pytest.mark.parametrize("entries", [1, 60, 10**6])
def test_mean_and_deviation_do_not_depend_on_the_columns_taken_at_a_time(entries, monkeypatch):
    monkeypatch.setattr("lightning_fl.updates.rows._SPREAD_CPU", entries)
    x = reference.problem("badly scaled")
    mean, std = mean_and_std(torch.tensor(x), "lie")
    np.testing.assert_allclose(mean, [sum(column) / len(x) for column in x.T], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(std, reference.std(x), rtol=1e-12)
