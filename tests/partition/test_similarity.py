"""Gamma similarity, against byzfl's words typed as a loop."""

import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.similarity import Similarity, dealt

LABELS = [2, 0, 1, 1, 0, 2, 2, 1, 0, 0, 1, 2, 0, 1]
ORDER = [13, 2, 7, 0, 9, 4, 11, 1, 3, 5, 6, 8, 10, 12]


def slow(labels, order, m, n_clients):
    """The first m as they stand, the others sorted by (label, number); each cut by NumPy's array_split."""
    rest = sorted(order[m:], key=lambda sample: (labels[sample], sample))
    return [
        [*map(int, a), *map(int, b)]
        for a, b in zip(np.array_split(order[:m], n_clients), np.array_split(rest, n_clients), strict=True)
    ]


@pytest.mark.parametrize("m", [0, 6, 7, 14])
@pytest.mark.parametrize("order", [list(range(14)), ORDER, [*reversed(ORDER[:7]), *ORDER[7:]]])
def test_equals_the_loop(order, m):
    found = dealt(torch.tensor(LABELS), torch.tensor(order), m, 4)
    assert [part.tolist() for part in found] == slow(LABELS, order, m, 4)


def test_by_hand():
    """Half of them: the first 7 as they are drawn, cut 2 2 2 1; of the rest 1 4 8 9 (0) ... by class, cut 2 2 2 1."""
    found = dealt(torch.tensor(LABELS), torch.arange(14), 7, 4)
    # classes of samples 7..13: 1 0 0 1 2 0 1, so sorted: 8 9 12 (0), 7 10 13 (1), 11 (2)
    assert [part.tolist() for part in found] == [[0, 1, 8, 9], [2, 3, 12, 7], [4, 5, 10, 13], [6, 11]]


@pytest.mark.parametrize(
    ("n", "gamma", "m"), [(100, 0.29, 28), (100, 0.57, 56), (100, 0.58, 57), (100, 0.33, 33), (48_000, 0.66, 31_680)]
)
def test_the_share_is_cut_off_as_the_product_of_doubles_is(n, gamma, m, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "lightning_fl.partition.similarity.dealt", lambda *given: seen.append(given[2]) or dealt(*given)
    )
    Similarity(gamma)(torch.arange(n) % 10, 10, 10, torch.Generator())
    assert seen == [m]


def test_both_ends(draw):
    labels = torch.arange(400) % 4
    ends = {gamma: Similarity(gamma)(labels, 8, 4, draw) for gamma in (0.0, 1.0)}
    assert [labels[part].unique().tolist() for part in ends[0]] == [[z] for z in range(4) for _ in range(2)]
    assert all(len(labels[part].unique()) == 4 for part in ends[1])


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_gamma_out_of_range(gamma):
    with pytest.raises(SettingError, match=r"similarity needs .*gamma"):
        Similarity(gamma)
