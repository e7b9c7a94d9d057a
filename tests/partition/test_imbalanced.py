"""Class-imbalanced iid clients."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.imbalanced import Imbalanced, kept


@pytest.mark.parametrize(
    ("n", "gamma", "expected"),
    [
        (60, 0.01, [60, 35, 21, 12, 7, 4, 2, 1, 1, 1]),  # 60 / 10^(2 z / 9), cut off, but at least 1
        (50, 0.1, [50, 38, 29, 23, 17, 13, 10, 8, 6, 5]),
        (300, 0.01, [300, 179, 107, 64, 38, 23, 13, 8, 5, 3]),
    ],
)
def test_what_a_client_keeps_of_each_class(n, gamma, expected):
    assert [kept(n, z, 10, gamma) for z in range(10)] == expected
    # Ten clients with n of each class, the last with n - 1 of class 0, as a loop deals them.
    labels = torch.arange(10).repeat(10 * n)[1:]
    parts = Imbalanced(gamma)(labels, 10, 10, torch.Generator())
    table = [labels[part].bincount(minlength=10).tolist() for part in parts]
    assert table == [[n - (client == 9), *expected[1:]] for client in range(10)]


def test_the_first_clients_get_what_is_left_over():
    """Classes of 23 and 3 samples over 5 clients: 5 5 5 4 4 and 1 1 1 0 0; who has a class keeps a sample of it."""
    labels = torch.tensor([0] * 23 + [1] * 3)
    parts = Imbalanced(0.0)(labels, 5, 2, torch.Generator())
    assert [labels[part].bincount(minlength=2).tolist() for part in parts] == [[5, 1], [5, 1], [5, 1], [4, 0], [4, 0]]


def test_everything_is_kept_at_one():
    assert sum(map(len, Imbalanced(1.0)(torch.arange(90) % 3, 7, 3, torch.Generator()))) == 90


def test_what_is_refused():
    with pytest.raises(SettingError, match=r"imbalanced needs .*gamma"):
        Imbalanced(1.5)
    with pytest.raises(SettingError, match="imbalanced needs at least 2 classes, got 1 for 3 clients"):
        Imbalanced()(torch.zeros(9, dtype=torch.int64), 3, 1, torch.Generator())
