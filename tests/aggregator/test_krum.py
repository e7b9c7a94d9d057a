import numpy as np
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.krum import Krum, MultiKrum, krum_weights
from lightning_fl.contract import world
from lightning_fl.updates.products import gram_matrix
from tests.aggregator import reference


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


def test_f_copies_are_as_good_as_f_honest_rows():
    """One row fewer than the guarantee asks for."""
    assert Krum(2)(torch.tensor([[7.0], [7.0], [0.0], [0.0], [0.0]])).item() == 7


def test_more_rows_than_are_left_are_all_that_are_left(draw):
    x = torch.randn(11, 6, generator=draw)
    x[2], x[5] = torch.nan, torch.inf
    torch.testing.assert_close(MultiKrum(2, m=11)(x), x[x.isfinite().all(1)].mean(0))


def test_of_equal_scores_the_first_counts():
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    assert Krum(f=1)(x).item() == 0
    assert MultiKrum(f=1, m=2)(x).item() == 0.5
    assert torch.equal(Krum(1)(torch.ones(4, 2)), torch.ones(2))
