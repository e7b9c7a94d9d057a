import numpy as np
import pytest
import torch

from lightning_fl.aggregator import smea
from lightning_fl.aggregator.smea import Smea, smallest_eigenvalue_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D, F = 9, 5, 3
X = torch.tensor(reference.X)


@pytest.fixture
def by_swaps(monkeypatch):
    """The search for many rows, on few."""
    monkeypatch.setattr(smea, "_MOST_SUBSETS", 0)


E6 = [
    (1, [0.8333333, 1.3166667], range(6)),
    (2, [0.78, 0.98], [0, 1, 2, 3, 5]),
    (3, [0.975, 1.225], [1, 2, 3, 5]),
]


@pytest.mark.parametrize(("f", "mean", "rows"), E6)
def test_literal(f, mean, rows):
    expected = torch.tensor(mean, dtype=torch.float64)
    torch.testing.assert_close(Smea(f)(X), expected, rtol=0, atol=1e-6)
    weights, exact = smallest_eigenvalue_weights(gram_matrix(X), f)
    assert exact
    assert weights.nonzero().flatten().tolist() == list(rows)


@pytest.mark.usefixtures("by_swaps")
@pytest.mark.parametrize(("f", "mean", "rows"), E6)
def test_literal_by_swaps(f, mean, rows):
    weights, exact = smallest_eigenvalue_weights(gram_matrix(X), f)
    assert not exact
    assert weights.nonzero().flatten().tolist() == list(rows)


def test_variance_is_not_diameter():
    """Rows 0 to 4 have the least diameter, 4, and variance 3.84; rows 0 to 3 and 6 have 5 and 3.04."""
    x = torch.tensor([[0.0], [4.0], [4.0], [4.0], [0.0], [9.0], [5.0]])
    assert Smea(2)(x).item() == pytest.approx(3.4)


@pytest.mark.usefixtures("by_swaps")
@pytest.mark.parametrize("seed", range(20))
def test_swaps_end_where_none_helps(seed):
    """The subset found is no worse than any that differs in one row; here at most half as bad again as the best."""
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).numpy()
    weights, _ = smallest_eigenvalue_weights(gram_matrix(torch.tensor(x)), 4)
    inside = weights.nonzero().flatten().tolist()
    found = reference.top_variance(x[inside])
    for row in inside:
        for other in set(range(10)) - set(inside):
            swapped = [other if i == row else i for i in inside]
            assert reference.top_variance(x[swapped]) >= found * (1 - 1e-9)
    _, best = reference.smallest_eigenvalue_average(x, 4)
    assert found <= 1.5 * reference.top_variance(x[list(best)])


@pytest.mark.parametrize("seed", range(20))
def test_the_row_dropped_is_that_of_all_trials(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 1 + seed % 9, generator=draw, dtype=torch.float64)
    x[3] = x.mean(0)
    x[6] = x[5] * 10 ** (seed % 3)
    for rows in [x, x.clamp(max=0.5), torch.ones(5, 2).double(), torch.eye(6).double()]:
        values = [reference.top_variance(np.delete(rows.numpy(), j, axis=0)) for j in range(len(rows))]
        found = smea._best_drop(gram_matrix(rows))
        assert values[found] <= min(values) * (1 + 1e-9) + 1e-12


def test_of_equal_rows_one_is_dropped_and_one_beside_them_that_is_farther():
    """Copies of an outlier have the same root to the last digit; a longer one beside them has a lower one."""
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[[2, 5, 7]] = 30 * x[2]
    assert smea._best_drop(gram_matrix(x)) in {2, 5, 7}
    x[9] = 1.001 * x[2]
    assert smea._best_drop(gram_matrix(x)) == 9


@pytest.mark.parametrize("seed", range(30))
def test_the_best_swap_is_that_of_all_trials(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(9, 1 + seed % 10, generator=draw, dtype=torch.float64)
    inside = torch.randperm(9, generator=draw) < 6
    own, outside = inside.nonzero().flatten().tolist(), (~inside).nonzero().flatten().tolist()
    values = {
        (z, y): reference.top_variance(x.numpy()[[z if i == y else i for i in own]]) for z in outside for y in own
    }
    best = min(values, key=values.get)
    found = smea._best_swap(gram_matrix(x), inside)
    if found is None:
        assert values[best] >= reference.top_variance(x.numpy()[own]) * (1 - 1e-9)
    else:
        assert values[found] == pytest.approx(values[best], rel=1e-9)
        assert values[found] < reference.top_variance(x.numpy()[own])


@pytest.mark.usefixtures("by_swaps")
def test_swaps_drop_huge_rows():
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(1))
    x[[0, 5, 7]] = torch.tensor([[1e30], [-1e30], [3e20]])
    weights, _ = smallest_eigenvalue_weights(gram_matrix(x), 3)
    assert weights[[0, 5, 7]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("unit", [1.0, 0.1, 1e12, 1e-12])
def test_of_subsets_with_equal_eigenvalues_the_first_counts(unit):
    """Whatever rounding makes of them: rows 0 to 2 and 1 to 3 are each other's mirror images."""
    x = unit * torch.tensor([[0.0], [1.0], [1.0], [2.0]], dtype=torch.float64)
    assert smallest_eigenvalue_weights(gram_matrix(x), 1)[0].nonzero().flatten().tolist() == [0, 1, 2]
    triples = unit * torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0]] * 3, dtype=torch.float64)
    expected = reference.smallest_eigenvalue_average(triples.numpy(), 1)[0]
    np.testing.assert_allclose(Smea(1)(triples).numpy(), expected)


def test_says_that_all_subsets_were_tried():
    assert Smea(F).aggregate(world.updates(), world.oracle()).diagnostics == {"exact": 1}


def test_up_to_50_000_subsets_are_all_tried(monkeypatch):
    """C(24, 5) = 42,504 and C(25, 5) = 53,130."""
    monkeypatch.setattr(smea, "_try_all", lambda gram, f: torch.arange(len(gram)) >= f)
    assert smallest_eigenvalue_weights(torch.eye(24).double(), 5)[1]
    assert not smallest_eigenvalue_weights(torch.eye(25).double(), 5)[1]


@pytest.mark.usefixtures("by_swaps")
def test_says_that_not_all_subsets_were_tried():
    assert Smea(F).aggregate(world.updates(), world.oracle()).diagnostics == {"exact": 0}


@pytest.mark.parametrize("n_others", [0, 10])
def test_many_equal_rows_win(draw, n_others):
    """Enough rows for the search by swaps, which has no direction to go in."""
    row = world.honest_updates(1)
    rows = torch.cat([row.expand(40 - n_others, -1), 1e3 * torch.randn(n_others, row.shape[1], generator=draw)])
    torch.testing.assert_close(Smea(10)(rows), row[0], rtol=1e-4, atol=1e-5)


def test_equal_rows_are_its_answer():
    """Declared, so that the contract holds it to the law."""
    assert Smea(f=1).exact
