"""Rules that choose or filter by distances and tolerate any minority: what they have in common."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.aksel import Aksel
from lightning_fl.aggregator.caf import Caf
from lightning_fl.aggregator.mda import Mda, minimum_diameter_weights
from lightning_fl.aggregator.smea import Smea
from lightning_fl.contract import hostile
from tests.aggregator import reference

N, D, F = 9, 5, 3


def first_of_least_diameter(x, f):
    """MDA, with the first of equal subsets in place of one that is drawn."""
    rows = Updates(x)
    return rows.combine(minimum_diameter_weights(rows.centred.gram, f))


# The class, the function, how many honest diameters f rows move it at most, and the tolerance for huge rows: beside one
# of 1e6 the others lose some 1e-6 of their weight in CAF, and nothing beside one of 1e30.
RULES = {
    "aksel": (Aksel, lambda x, f: Aksel(f)(x), 3, {}),
    "caf": (Caf, lambda x, f: Caf(f)(x), 4, {"rtol": 0, "atol": 1e-5}),
    "mda": (Mda, first_of_least_diameter, 3, {}),
    "smea": (Smea, lambda x, f: Smea(f)(x), 3, {}),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), hostile.lists(F), st.sampled_from([1, None]))
def test_hostile_rows_do_not_break_it(name, seed, values, entries):
    _, rule, diameters, _ = RULES[name]
    honest = torch.randn(N, D, generator=torch.Generator().manual_seed(seed))
    result = rule(hostile.rows(honest, values, entries), len(values))
    assert result.isfinite().all()
    assert (result - honest.mean(0)).norm() <= diameters * torch.pdist(honest).max()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", RULES)
def test_a_row_of_1e30_is_one_of_a_million(name, seed):
    """It is dropped either way."""
    _, rule, _, tolerance = RULES[name]
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    far, further = x.clone(), x.clone()
    far[[1, 4]] *= 1e6
    further[[1, 4]] *= 1e30
    torch.testing.assert_close(rule(further, F), rule(far, F), **tolerance)


@pytest.mark.parametrize("f", [1, F])
@pytest.mark.parametrize("name", RULES)
def test_equal_rows_win(name, f):
    """n - f equal rows make the result, whatever the others are."""
    equal = torch.tensor([0.1, -3.0, 1e3])
    for bad in [7.0, -1e30, torch.nan, 0.0]:
        x = torch.cat([torch.full((f, 3), bad), equal.expand(f + 1, -1)])
        x[0] *= 2
        torch.testing.assert_close(RULES[name][1](x, f), equal)


@pytest.mark.parametrize("name", RULES)
def test_non_finite_rows_count_among_the_f(name):
    rule, x = RULES[name][1], torch.as_tensor(reference.problem("random", N, D))
    x[2], x[5, 1] = torch.nan, torch.inf
    rest = x[x.isfinite().all(1)]
    for f, left in [(F, F - 2), (1, 0)]:
        torch.testing.assert_close(rule(x, f), rule(rest, left))


@pytest.mark.parametrize("name", RULES)
def test_refuses_f_out_of_range(name):
    kind = RULES[name][0]
    with pytest.raises(SettingError, match=rf"{name} needs .*n >= 2f \+ 1 updates, got n=8 and f=4; change f"):
        kind(4)(torch.randn(8, 2))
    with pytest.raises(SettingError, match=f"{name} needs f >= 0"):
        kind(-1)(torch.randn(8, 2))


@pytest.mark.parametrize("name", RULES)
def test_refuses_what_no_rule_can_serve(name):
    rule = RULES[name][1]
    with pytest.raises(SettingError, match="at least one update without NaN"):
        rule(torch.full((6, 2), torch.nan), 1)
    with pytest.raises(SettingError, match=r"\(n, d\)"):
        rule(torch.zeros(0, 3), 0)
    with pytest.raises(SettingError, match="floating point"):
        rule(torch.ones(6, 3, dtype=torch.int64), 1)
