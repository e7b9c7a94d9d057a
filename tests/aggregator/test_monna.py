import numpy as np
import pytest
import torch

from lightning_fl import Federation, SettingError, Updates
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.monna import Monna, monna_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D, F = 9, 5, 3
X = torch.tensor(reference.X)


def test_literal():
    """Nearest to row 0 are rows 0 1 5 2 3, to row 2 rows 2 5 4 1 3: n - f = 5 rows, the trusted one among them."""
    torch.testing.assert_close(Monna(2, 0)(X), torch.tensor([0.78, 0.98], dtype=torch.float64))
    torch.testing.assert_close(Monna(2, 2)(X), torch.tensor([1.0, 1.58], dtype=torch.float64))


def test_the_server_counts_as_one_more():
    """5 rows and itself; or these alone."""
    mean = torch.tensor([0.78, 0.98], dtype=torch.float64)
    torch.testing.assert_close(Monna(2)(X, X[0].clone()), mean * 5 / 6)
    torch.testing.assert_close(Monna(2, include_trusted=False)(X, X[0].clone()), mean)


def test_the_trusted_row_comes_before_its_copies():
    x = torch.tensor([[1.0], [1.0], [1.0], [5.0], [9.0]])
    assert monna_weights(gram_matrix(x), 2, trusted=2).tolist() == [1 / 3, 1 / 3, 1 / 3, 0, 0]
    assert monna_weights(gram_matrix(x), 0, trusted=2).tolist() == [0.2] * 5
    x = torch.tensor([[1.0], [1.0], [5.0], [1.0], [1.0]])
    assert monna_weights(gram_matrix(x), 2, trusted=4).tolist() == [1 / 3, 1 / 3, 0, 0, 1 / 3]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30, -1e30, 0.0])
def test_hostile_rows_stay_out(bad):
    """Far rows leave the result as it is without them and with f less by their number."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(0)) + 5
    y = x.clone()
    y[[1, 2]] = bad
    rest = x[[0, *range(3, N)]]
    torch.testing.assert_close(Monna(F, 0)(y), Monna(F - 2, 0)(rest))
    torch.testing.assert_close(Monna(F)(y, x[0] + 0.1), Monna(F - 2)(rest, x[0] + 0.1))


def test_errors():
    with pytest.raises(SettingError, match="needs the update of client 7, got a round without it"):
        Monna(2, 7)(X)
    broken = X.clone()
    broken[0] = torch.nan
    with pytest.raises(SettingError, match="monna needs a finite trusted update"):
        Monna(2, 0)(broken)
    with pytest.raises(SettingError, match="monna needs a finite trusted update"):
        Monna(2)(X, broken[0])
    with pytest.raises(SettingError, match="length 2, got 3"):
        Monna(2)(X, torch.zeros(3))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("trusted", "settings", "message"),
    [
        (500, {}, "monna trusts an honest client, got 500, who does not exist; change aggregator.trusted"),
        (11, {}, "monna trusts an honest client, got 11, who attacks; change aggregator.trusted"),
        (
            3,
            {"participation": 0.5},
            r"monna needs client 3 in every round, got federation\.participation=0\.5",
        ),
    ],
)
def test_a_trusted_client_is_honest_and_always_there(trusted, settings, message, wrapped):
    rule = Monna(2, trusted)
    rule = Gas(Clipping(rule, 1.0), 2) if wrapped else rule
    with pytest.raises(SettingError, match=message):
        rule.check_clients(Federation(10, 2, **settings))
    Monna(2, 9).check_clients(Federation(10, 2))
    Monna(2).check_clients(Federation(10, 2, participation=0.5))


def test_the_class_trusts_the_server():
    updates, oracle = world.updates(), world.oracle()
    for include in [True, False]:
        aggregation = Monna(F, include_trusted=include).aggregate(updates, oracle)
        expected = reference.monna_of_server(updates.rows.double().numpy(), F, oracle.update.double().numpy(), include)
        np.testing.assert_allclose(aggregation.update.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert aggregation.weights.sum().item() == pytest.approx(9 / 10 if include else 1)


def test_the_class_trusts_a_client_by_its_number():
    rows = world.honest_updates(12)
    updates = Updates(rows, ids=[*range(20, 26), 3, *range(30, 35)])
    aggregation = Monna(F, trusted=3).aggregate(updates, world.oracle())
    expected = reference.monna(rows.double().numpy(), F, 6)
    np.testing.assert_allclose(aggregation.update.numpy(), expected, rtol=1e-5, atol=1e-6)
    for named, found in [(updates, "a round without it"), (Updates(rows), "rows that are not single clients")]:
        with pytest.raises(SettingError, match=f"needs the update of client 4, got {found}; change aggregator.trusted"):
            Monna(F, trusted=4).aggregate(named, world.oracle())
