import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import MeanShift, estimate_bandwidth

from lightning_fl import Updates
from lightning_fl.aggregator.signguard import Signguard, largest_cluster, sign_statistics, signguard_weights
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D = 11, 6


def of_columns(x, columns, **settings):
    """The rule, with the signs in these coordinates."""
    rows = Updates(x)
    return rows.combine(signguard_weights(rows, columns, **settings))


def mixed_signs(n: int, d: int, seed: int) -> torch.Tensor:
    """Rows of which a few have other shares of signs, another length or zeros."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=draw, dtype=torch.float64) + 0.5
    x[: n // 4] -= 1.5
    x[n // 4 : n // 3] *= 5
    x[torch.rand(n, d, generator=draw) < 0.1] = 0
    return x


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_the_loop(seed, scaled):
    x = mixed_signs(15, 20, seed)
    columns = torch.arange(3, 17)
    expected, _ = peers.signguard(x.numpy(), columns.tolist(), scaled=scaled)
    np.testing.assert_allclose(of_columns(x, columns, scaled=scaled).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 10, 11])
@pytest.mark.parametrize("name", [name for name in reference.PROBLEMS if name != "tied"])
def test_agrees_with_the_loop_on_other_problems(name, n):
    x = reference.problem(name, n, D)
    expected, _ = peers.signguard(x, range(D), lower=0.2, upper=2.0)
    found = of_columns(torch.as_tensor(x), torch.arange(D), lower=0.2, upper=2.0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_mean_shift_is_that_of_scikit_learn(seed):
    points = sign_statistics(mixed_signs(40, 50, seed))
    width = estimate_bandwidth(points.numpy(), quantile=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = MeanShift(bandwidth=width, cluster_all=False).fit_predict(points.numpy())
    largest = np.bincount(labels[labels >= 0]).argmax()
    assert largest_cluster(points).tolist() == (labels == largest).tolist()


def test_literal():
    """Norms 2.45 2.42 2.80 1.50 3.20 5.02 5.14; row 3 alone has no negative entry, the others 2/3, 0, 1/3.

    All are between 0.28 and 8.41 long.  The third neighbours are 0 away, of row 3 sqrt(2)/3: bandwidth sqrt(2)/21.
    Rows 4, 5 and 6 are clipped to 2.80; without clipping (-0.3, 1.6, 0.5667) follows, with row 3 (0.2278, ...).
    """
    z = torch.tensor(reference.Z, dtype=torch.float64)
    result, found = peers.signguard(reference.Z, range(3))
    assert found["M"] == pytest.approx(7.85**0.5)
    assert found["bandwidth"] == pytest.approx(2**0.5 / 21)
    assert found["chosen"] == [0, 1, 2, 4, 5, 6]
    np.testing.assert_allclose(result, [0.1158057, 1.4713967, -0.0045981], atol=1e-7)
    expected = torch.tensor([[1, 2, -1], [1.5, 1.8, -0.6], [0.4, 2.5, -1.2]], dtype=torch.float64).sum(0)
    for row, square in [(4, 10.28), (5, 25.25), (6, 26.41)]:
        expected += z[row] * (7.85 / square) ** 0.5
    for scaled in [False, True]:
        torch.testing.assert_close(of_columns(z, torch.arange(3), scaled=scaled), expected / 6)


def test_the_median_of_an_even_number_of_norms_is_between_the_middle_two():
    """Norms 1, 2, 4, 8: M = 3, so 8 is clipped to 3, and L M and R M keep 1 and 8."""
    x = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    assert of_columns(x, torch.tensor([0])).item() == (1 + 2 + 3 + 3) / 4
    assert of_columns(x, torch.tensor([0]), upper=2.5).item() == 2  # 8 is not below 7.5
    assert of_columns(x, torch.tensor([0]), lower=0.4).item() == pytest.approx(8 / 3)
    for rule, expected, passing in [(Signguard(upper=2.5), 2, [0, 1, 2]), (Signguard(lower=0.4), 8 / 3, [1, 2, 3])]:
        found = rule.aggregate(Updates(x), world.oracle())
        assert found.update.item() == pytest.approx(expected)
        assert found.trust.tolist() == pytest.approx([1 / 3 if i in passing else 0 for i in range(4)])


def test_only_the_signs_of_the_columns_count():
    x = torch.tensor([[1.0, 2.0], [1.0, -2.0], [1.0, -2.0], [1.0, -2.0]])
    assert of_columns(x, torch.tensor([0])).tolist() == [1, -1]
    assert of_columns(x, torch.tensor([1])).tolist() == [1, -2]


def test_where_nobody_passes_both_filters():
    """The larger cluster of signs is too long or too short: the others count; where the median is 0, all do."""
    x = torch.tensor([[9.0, 9.0], [0.01, 0.01], [0.02, 0.01], [1.0, -1.0], [1.0, -2.0], [1.0, -1.0], [8.0, 9.0]])
    expected, found = peers.signguard(x.double().numpy(), [0, 1])
    assert found["chosen"] == found["S1"] == [3, 4, 5]
    np.testing.assert_allclose(of_columns(x, torch.arange(2)), expected, rtol=1e-6)
    assert of_columns(torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0])).tolist() == [0]


def test_two_equal_clusters_keep_the_first():
    x = torch.tensor([[-1.0], [1.0], [1.0], [-1.0]])
    assert of_columns(x, torch.tensor([0])).item() == -1


def test_negative_rows_give_the_negative_result():
    x, columns = mixed_signs(15, 20, 3), torch.arange(20)
    torch.testing.assert_close(of_columns(-x, columns), -of_columns(x, columns))


def test_the_class_draws_a_block_of_columns(draw):
    x = torch.randn(N, world.D, generator=draw)
    everything = Signguard(0.1, 3.0, 0.1, False).aggregate(Updates(x), world.oracle())  # a tenth of 9 is nothing
    assert torch.equal(everything.update, of_columns(x, torch.arange(world.D)))
    torch.testing.assert_close(everything.weights.float() @ x, everything.update)
    start = int(torch.randint(world.D - 3, (1,), generator=world.oracle().generator("signguard")))
    some = Signguard(0.5, 1.5, 0.5, True).aggregate(Updates(x), world.oracle())
    torch.testing.assert_close(
        some.update, of_columns(x, torch.arange(start, start + 4), lower=0.5, upper=1.5, scaled=True)
    )


@pytest.mark.parametrize("scaled", [False, True])
def test_the_class_divides_the_shares_of_signs_if_asked(scaled):
    x = mixed_signs(15, 20, 6)
    found = Signguard(share=1.0, scaled=scaled).aggregate(Updates(x), world.oracle()).update
    torch.testing.assert_close(found, of_columns(x, torch.arange(20), scaled=scaled))
    assert not torch.allclose(found, of_columns(x, torch.arange(20), scaled=not scaled))
