import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.lasa import Lasa
from lightning_fl.contract import world
from lightning_fl.updates.columns import Layer
from lightning_fl.updates.mixed import mix
from tests.aggregator import reference
from tests.aggregator import reference_field as field

LAYOUT = (Layer("A", 0, 6, 2), Layer("a", 6, 8, 1), Layer("B", 8, 10, 2))


def pairs(layout):
    return [(range(layer.start, layer.stop), layer.dimensions) for layer in layout]


def ask(x, layout=LAYOUT, **settings):
    return Lasa(**settings).aggregate(Updates(torch.as_tensor(x), layout=layout), world.oracle())


@pytest.mark.parametrize(
    "settings", [{}, {"median": "lower"}, {"lambda_n": 2.0}, {"aggregate": "dense"}, {"sparsity": 0.0}]
)
def test_small_problem(settings):
    loop = {"kind" if key == "median" else key: value for key, value in settings.items()}
    expected, used = field.lasa(field.V, pairs(LAYOUT), **loop)
    found = ask(field.V, **settings)
    np.testing.assert_allclose(found.update, expected, rtol=1e-12, atol=1e-15)
    shares = [
        sum(layer.size / 10 * (i in rows) / len(rows) for layer, rows in zip(LAYOUT, used, strict=True))
        for i in range(6)
    ]
    np.testing.assert_allclose(found.trust, shares, rtol=1e-12)
    np.testing.assert_allclose(ask(-field.V, **settings).update, -expected, rtol=1e-12, atol=1e-15)


def test_literal():
    """Of 1, 2, 3, 4 in a matrix, floor(0.5 x 4) = 2 are kept, and the second itself becomes 0; the bias stays."""
    layout = (Layer("w", 0, 4, 2), Layer("b", 4, 5, 1))
    row = torch.tensor([[1.0, -2.0, 3.0, 4.0, 0.5]])
    assert ask(row, layout, sparsity=0.5).update.tolist() == [0, 0, 0, 4, 0.5]
    assert ask(row, layout, sparsity=0.0).update.tolist() == row[0].tolist()
    assert ask(row, sparsity=0.9, layout=None).update.tolist() == row[0].tolist()  # one tensor of one dimension


def test_two_clients_are_never_unusual_enough_to_be_alone():
    """Both are one standard deviation from the median: nobody passes, so both count."""
    x = torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    found = ask(x, layout=None, sparsity=0.0)
    assert found.trust.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("problem", ["random", "rank-deficient", "badly scaled"])
def test_agrees_with_the_loop(problem, dtype):
    layout = (Layer("w", 0, 30, 4), Layer("b", 30, 33, 1), Layer("v", 33, 60, 2))
    x = torch.as_tensor(reference.problem(problem, 11, 60), dtype=dtype)
    expected, _ = field.lasa(x.double().numpy(), pairs(layout), sparsity=0.4)
    np.testing.assert_allclose(ask(x, layout, sparsity=0.4).update, expected, rtol=1e-5, atol=1e-7)


def test_a_tensor_of_zeros_hides_nobody():
    """In public code it makes the tensor's scores NaN, and lets everybody in."""
    x = np.random.default_rng(0).standard_normal((9, 10))
    x[0, 6:8] = 0
    x[8, 6:8] = 1e3
    expected, used = field.lasa(x, pairs(LAYOUT))
    assert 8 not in used[1]
    np.testing.assert_allclose(ask(x).update, expected, rtol=1e-12, atol=1e-15)


def test_mixed_rows_keep_their_layout():
    mixed = mix(Updates(torch.as_tensor(field.V), layout=LAYOUT), torch.eye(6) * 2)
    torch.testing.assert_close(Lasa().aggregate(mixed, world.oracle()).update, 2 * ask(field.V).update)


@pytest.mark.parametrize(("sparsity", "size", "keep"), [(0.9, 1000, 100), (0.3, 90, 63), (0.8, 10, 2), (0.9, 10, 1)])
def test_how_many_entries_stay(sparsity, size, keep, draw):
    """As a person counts them: (1 - 0.9) * 1000 is 99.99999999999997."""
    row = torch.randn(1, size, generator=draw)
    found = ask(row, (Layer("A", 0, size, 2),), sparsity=sparsity).update
    assert found.count_nonzero() == keep - 1  # those above the size of the least kept one


def test_a_sparsity_that_leaves_nothing():
    with pytest.raises(SettingError, match=r"lasa needs a sparsity that keeps an entry of 8, got 0\.95; lower"):
        ask(field.V, sparsity=0.95)
