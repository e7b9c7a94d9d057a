import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import DivergedError, SettingError, Updates
from lightning_fl.aggregator.krum import Krum, MultiKrum, krum_weights
from lightning_fl.contract import hostile, world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference

N, D = 11, 6


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
    assert krum_weights(gram_matrix(torch.tensor(x)), 2, m=None).tolist() == [0.2, 0.2, 0.2, 0, 0, 0.2, 0.2]
    torch.testing.assert_close(MultiKrum(2)(torch.tensor(x)), torch.tensor([6.2, 6.2]).double())


def test_literal_neighbours():
    """n - f - 2 = 1 other: scores 1 1 4 4 25.  n - f - 1 = 2: 10 5 8 20 74."""
    x = torch.tensor([[0.0], [1.0], [3.0], [5.0], [10.0]])
    assert Krum(2)(x).item() == 0
    assert Krum(2, "n-f-1")(x).item() == 1
    assert MultiKrum(2, 2)(x).item() == 0.5
    assert MultiKrum(2, 2, "n-f-1")(x).item() == 2
    for rule, expected in [(Krum(2, "n-f-1"), 1), (MultiKrum(2, 2, "n-f-1"), 2)]:
        assert rule.aggregate(Updates(x), world.oracle()).update.item() == expected


@pytest.mark.parametrize(("neighbours", "n"), [("n-f-2", 8), ("n-f-1", 7)])
def test_equal_honest_rows_win_within_the_bound(neighbours, n):
    """n - f equal rows against f = 3 of anything; one row fewer, f copies are as good."""
    f = 3
    for bad in [7.0, 1e30, torch.nan]:
        x = torch.cat([torch.full((f, 2), bad), torch.zeros(n - f, 2)])
        assert Krum(f, neighbours)(x).tolist() == MultiKrum(f, None, neighbours)(x).tolist() == [0, 0]
        assert Krum(f, neighbours)(x.flip(0)).tolist() == [0, 0]
    assert Krum(2)(torch.tensor([[7.0], [7.0], [0.0], [0.0], [0.0]])).item() == 7


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
    assert Krum(f=1)(x).item() == 0
    assert MultiKrum(f=1, m=2)(x).item() == 0.5
    assert torch.equal(Krum(1)(torch.ones(4, 2)), torch.ones(2))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(4), st.sampled_from([1, None]))
def test_hostile_rows_do_not_break_it(seed, values, entries):
    """A chosen row has no more than the worst honest score, and an honest neighbour, as long as n >= 2f + 3."""
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    x = hostile.rows(honest, values, entries)
    reach = honest.norm(dim=1).max() + (N**0.5) * torch.pdist(honest).max()
    for rule in [Krum(len(values)), MultiKrum(len(values))]:
        result = rule(x)
        assert result.isfinite().all()
        assert result.norm() <= reach


def test_non_finite_rows_count_among_the_f():
    """Two of f = 2: what is left is Krum on the others with f = 0; a third makes it go on with fewer rows."""
    x = torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for rule, loop in [(Krum, reference.krum), (MultiKrum, reference.multi_krum)]:
        np.testing.assert_allclose(rule(2)(x), loop(rest.numpy(), 0), rtol=1e-12)
        np.testing.assert_allclose(rule(4)(x), loop(rest.numpy(), 2), rtol=1e-12)
        np.testing.assert_allclose(rule(1)(x), loop(rest.numpy(), 0), rtol=1e-12)
    np.testing.assert_allclose(MultiKrum(2, m=N)(x), rest.mean(0), rtol=1e-12)
    x[1:] = torch.nan
    for rule in [Krum(2), MultiKrum(2)]:
        assert torch.equal(rule(x), x[0])


@pytest.mark.parametrize(
    ("f", "m", "message"),
    [
        (-1, None, "multi_krum needs f >= 0, got -1"),
        (4, None, r"n >= f \+ 3 updates.* n=6 and f=4; change f"),
        (1, 0, "m >= 1, got 0"),
        (1, 7, "m=7 and n=6"),
    ],
)
def test_refuses_settings_out_of_range(f, m, message):
    with pytest.raises(SettingError, match=message):
        MultiKrum(f, m).check(6, 3)


@pytest.mark.parametrize(("rule", "name"), [(Krum(1), "krum"), (MultiKrum(1), "multi_krum")])
def test_says_which_rule_has_no_update_left(rule, name):
    with pytest.raises(DivergedError, match=f"^{name} needs at least one update without NaN"):
        rule(torch.full((6, 2), torch.nan))


def test_runs_as_far_as_it_means_something():
    """Beyond its guarantee n >= 2f + 3, as under bucketing; not where no neighbour would count."""
    Krum(3).check(6, 3)
    assert Krum(3)(torch.randn(6, 2)).isfinite().all()
    with pytest.raises(SettingError, match="n=6 and f=4"):
        Krum(4).check(6, 3)
    Krum(4, "n-f-1").check(6, 3)
    with pytest.raises(SettingError, match=r"n >= f \+ 2 updates, so that n - f - 1 >= 1 .*n=6 and f=5"):
        Krum(5, "n-f-1").check(6, 3)


def test_refuses_another_word():
    for rule in [Krum, MultiKrum]:
        with pytest.raises(SettingError, match="krum's neighbours must be one of n-f-2, n-f-1, got 'all'"):
            rule(1, neighbours="all")


def test_refuses_what_no_rule_can_serve():
    for rule in [Krum(0), MultiKrum(0)]:
        with pytest.raises(SettingError, match=r"\(n, d\)"):
            rule(torch.zeros(0, 3))
        with pytest.raises(SettingError, match="floating point"):
            rule(torch.ones(6, 3, dtype=torch.int64))
