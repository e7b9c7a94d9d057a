import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import DivergedError, SettingError, Updates
from lightning_fl.aggregator.krum import Krum, MultiKrum, krum, krum_weights, multi_krum, multi_krum_weights
from lightning_fl.contract import hostile, world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 11, 6


@pytest.mark.parametrize("f", [0, 3, N - 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", reference.PROBLEMS)
def test_agrees_with_the_loop(name, dtype, f):
    x = torch.as_tensor(reference.problem(name, N, D), dtype=dtype)
    before, rows = x.clone(), x.double().numpy()
    tolerance = {"rtol": 1e-6 if dtype == torch.float32 else 1e-12}
    np.testing.assert_allclose(krum(x, f).numpy(), reference.krum(rows, f), **tolerance)
    for m in [None, 1, 4, N]:
        np.testing.assert_allclose(
            multi_krum(x, f, m).numpy(), reference.multi_krum(rows, f, m), **tolerance, atol=1e-6
        )
    assert krum(x, f).dtype == multi_krum(x, f).dtype == dtype
    assert torch.equal(x, before)


def test_literal_krum():
    """Scores 44 58 44 47 40 44.  The row chosen tells how many neighbours counted.

    n - f - 3 (itself among the n - f - 2): row 2; n - f - 1: row 0; all: row 3; distances not squared: row 5.
    """
    x = np.array([[2.0, 6.0], [8.0, 7.0], [1.0, 5.0], [6.0, 3.0], [3.0, 2.0], [7.0, 7.0]])
    assert reference.krum_scores(x, 1) == [44, 58, 44, 47, 40, 44]
    assert krum_weights(gram_matrix(torch.tensor(x)), 1).tolist() == [0, 0, 0, 0, 1, 0]


def test_literal_multi_krum():
    """Scores 48 24 59 69 87 32 64, n - f = 5 rows.

    Choosing again after each choice gives (5.6, 4.6); m = n - f - 2: (8.67, 7.67); n - f - 1 neighbours: (7.4, 6.4);
    n - f - 3: (5.6, 5.6).
    """
    x = np.array([[9.0, 9.0], [9.0, 6.0], [2.0, 2.0], [8.0, 3.0], [0.0, 3.0], [8.0, 8.0], [3.0, 6.0]])
    assert reference.krum_scores(x, 2) == [48, 24, 59, 69, 87, 32, 64]
    assert multi_krum_weights(gram_matrix(torch.tensor(x)), 2).tolist() == [0.2, 0.2, 0.2, 0, 0, 0.2, 0.2]
    torch.testing.assert_close(multi_krum(torch.tensor(x), 2), torch.tensor([6.2, 6.2]).double())


def test_literal_neighbours():
    """n - f - 2 = 1 other: scores 1 1 4 4 25.  n - f - 1 = 2: 10 5 8 20 74."""
    x = torch.tensor([[0.0], [1.0], [3.0], [5.0], [10.0]])
    assert krum(x, 2).item() == 0
    assert krum(x, 2, "n-f-1").item() == 1
    assert multi_krum(x, 2, 2).item() == 0.5
    assert multi_krum(x, 2, 2, "n-f-1").item() == 2
    for rule, expected in [(Krum(2, "n-f-1"), 1), (MultiKrum(2, 2, "n-f-1"), 2)]:
        assert rule.aggregate(Updates(x), world.oracle()).update.item() == expected


@pytest.mark.parametrize("name", reference.PROBLEMS)
@pytest.mark.parametrize("f", [0, 3, N - 2])
def test_one_more_neighbour_agrees_with_the_loop(name, f):
    x = torch.as_tensor(reference.problem(name, N, D))
    loop = reference.mean_of_best(x.numpy(), reference.krum_scores(x.numpy(), f, 1), 1)
    np.testing.assert_allclose(krum(x, f, "n-f-1").numpy(), loop, rtol=1e-12)
    loop = reference.mean_of_best(x.numpy(), reference.krum_scores(x.numpy(), f, 1), N - f)
    np.testing.assert_allclose(multi_krum(x, f, neighbours="n-f-1").numpy(), loop, rtol=1e-12)


@pytest.mark.parametrize(("neighbours", "n"), [("n-f-2", 8), ("n-f-1", 7)])
def test_equal_honest_rows_win_within_the_bound(neighbours, n):
    """n - f equal rows against f = 3 of anything; one row fewer, f copies are as good."""
    f = 3
    for bad in [7.0, 1e30, torch.nan]:
        x = torch.cat([torch.full((f, 2), bad), torch.zeros(n - f, 2)])
        assert krum(x, f, neighbours).tolist() == multi_krum(x, f, None, neighbours).tolist() == [0, 0]
        assert krum(x.flip(0), f, neighbours).tolist() == [0, 0]
    assert krum(torch.tensor([[7.0], [7.0], [0.0], [0.0], [0.0]]), 2).item() == 7


@pytest.mark.parametrize(
    ("rule", "n", "text"),
    [
        (Krum(3), 9, None),
        (Krum(3), 8, "no guarantee: needs n >= 2f + 3, has 8 updates for f = 3"),
        (Krum(3, "n-f-1"), 7, None),
        (Krum(3, "n-f-1"), 6, "no guarantee: needs n >= 2f + 1, has 6 updates for f = 3"),
        (MultiKrum(3, None), 9, None),
        (MultiKrum(3, 6), 9, None),
        (MultiKrum(3, 7), 9, "no guarantee: needs m <= n - f, has 9 updates for f = 3 and m = 7"),
    ],
)
def test_says_where_its_guarantee_ends(rule, n, text):
    rule.check(n, 3)
    assert rule.guarantee(n, 3) == text


def test_of_equal_scores_the_first_counts():
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    assert krum(x, f=1).item() == 0
    assert multi_krum(x, f=1, m=2).item() == 0.5
    assert torch.equal(krum(torch.ones(4, 2), 1), torch.ones(2))


@pytest.mark.parametrize("seed", range(10))
def test_moves_with_the_rows(seed):
    """Translation, scale, rotation and order."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=draw, dtype=torch.float64)
    shift = torch.randn(D, generator=draw, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(D, D, generator=draw, dtype=torch.float64)).Q
    order = torch.randperm(N, generator=draw)
    for rule in [krum, multi_krum]:
        torch.testing.assert_close(rule((3 * x @ rotation + shift)[order], 3), 3 * rule(x, 3) @ rotation + shift)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 30), hostile.lists(4), st.sampled_from([1, None]))
def test_hostile_rows_do_not_break_it(seed, values, entries):
    """A chosen row has no more than the worst honest score, and an honest neighbour, as long as n >= 2f + 3."""
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    reach = honest.norm(dim=1).max() + (N**0.5) * torch.pdist(honest).max()
    for rule in [krum, multi_krum]:
        result = rule(x, len(values))
        assert result.isfinite().all()
        assert result.norm() <= reach


def test_non_finite_rows_count_among_the_f():
    """Two of f = 2: what is left is Krum on the others with f = 0; a third makes it go on with fewer rows."""
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for rule, loop in [(krum, reference.krum), (multi_krum, reference.multi_krum)]:
        np.testing.assert_allclose(rule(x, 2), loop(rest.numpy(), 0), rtol=1e-12)
        np.testing.assert_allclose(rule(x, 4), loop(rest.numpy(), 2), rtol=1e-12)
        np.testing.assert_allclose(rule(x, 1), loop(rest.numpy(), 0), rtol=1e-12)
    np.testing.assert_allclose(multi_krum(x, 2, m=N), rest.mean(0), rtol=1e-12)
    x[1:] = torch.nan
    for rule in [krum, multi_krum]:
        assert torch.equal(rule(x, 2), x[0])


@pytest.mark.parametrize("rule", [Krum(3), MultiKrum(3, None), MultiKrum(3, 5)])
def test_the_class_gives_the_functions_update_and_its_weights(rule):
    updates = world.updates()
    aggregation = rule.aggregate(updates, world.oracle())
    expected = krum(updates.rows, 3) if isinstance(rule, Krum) else multi_krum(updates.rows, 3, rule.m)
    assert torch.equal(aggregation.update, expected)
    assert aggregation.weights.sum().item() == pytest.approx(1)
    torch.testing.assert_close(aggregation.weights.float() @ updates.rows, aggregation.update)


@pytest.mark.parametrize(
    ("f", "m", "message"),
    [
        (-1, None, r"multi_krum needs f >= 0 .* n=6 and f=-1"),
        (4, None, r"n >= f \+ 3 updates.* n=6 and f=4; change f"),
        (1, 0, "1 <= m <= n, got m=0"),
        (1, 7, "m=7 and n=6"),
    ],
)
def test_refuses_settings_out_of_range(f, m, message):
    with pytest.raises(SettingError, match=message):
        multi_krum(torch.randn(6, 2), f, m)
    with pytest.raises(SettingError, match=message):
        MultiKrum(f, m).check(6, 3)


@pytest.mark.parametrize("rule", [krum, multi_krum])
def test_says_which_rule_has_no_update_left(rule):
    with pytest.raises(DivergedError, match=f"^{rule.__name__} needs at least one update without NaN"):
        rule(torch.full((6, 2), torch.nan), 1)


def test_runs_as_far_as_it_means_something():
    """Beyond its guarantee n >= 2f + 3, as under bucketing; not where no neighbour would count."""
    Krum(3).check(6, 3)
    assert krum(torch.randn(6, 2), 3).isfinite().all()
    with pytest.raises(SettingError, match="n=6 and f=4"):
        Krum(4).check(6, 3)
    Krum(4, "n-f-1").check(6, 3)
    with pytest.raises(SettingError, match=r"n >= f \+ 2 updates, so that n - f - 1 >= 1 .*n=6 and f=5"):
        Krum(5, "n-f-1").check(6, 3)


@pytest.mark.usefixtures("unchecked")
def test_refuses_another_word():
    with pytest.raises(SettingError, match="krum's neighbours must be one of n-f-2, n-f-1, got 'all'"):
        krum(torch.randn(6, 2), 1, "all")
    for rule in [Krum, MultiKrum]:
        with pytest.raises(SettingError, match="neighbours must be one of n-f-2, n-f-1, got 'all'"):
            rule(1, neighbours="all")


@pytest.mark.usefixtures("unchecked")
def test_refuses_what_no_rule_can_serve():
    for rule in [krum, multi_krum]:
        with pytest.raises(SettingError, match="at least one update without NaN"):
            rule(torch.full((6, 2), torch.nan), 1)
        with pytest.raises(SettingError, match=r"\(n, d\)"):
            rule(torch.zeros(0, 3), 0)
        with pytest.raises(SettingError, match="floating point"):
            rule(torch.ones(6, 3, dtype=torch.int64), 1)
