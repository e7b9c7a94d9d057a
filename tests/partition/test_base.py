"""What every partition is checked for, one's own included."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.partition.base import Partition
from lightning_fl.ranges import NonNegativeFloat


class Given(Partition):
    """Give these parts."""

    def __init__(self, *parts):
        self.parts = parts

    def assign(self, targets, n_clients, n_classes, generator):
        return [torch.tensor(part, dtype=torch.int64) for part in self.parts]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([[0, 1]], "Given must give each of 2 clients a part, got 1 parts"),
        ([[0], [1], [2]], "Given must give each of 2 clients a part, got 3 parts"),
        ([[0], [1, 4]], "Given must give numbers of samples, 0 to 3, got others"),
        ([[0], [-1, 1]], "Given must give numbers of samples, 0 to 3, got others"),
        ([[0], []], r"none for 1 of 2 clients \(first: 1\)"),
        ([[0, 3], [1, 3]], "Given must give a sample to one client, got sample 3 2 times"),
        ([[0, 2, 2], [1]], "Given must give a sample to one client, got sample 2 2 times"),
    ],
)
def test_what_is_no_partition_is_refused(parts, message):
    with pytest.raises(SettingError, match=message):
        Given(*parts)(torch.zeros(4, dtype=torch.int64), 2, 1, torch.Generator())


@pytest.mark.parametrize("part", [torch.tensor([True, False]), torch.tensor([0.0, 1.0])])
def test_masks_and_floats_are_no_numbers_of_samples(part):
    class Masks(Partition):
        def assign(self, targets, n_clients, n_classes, generator):
            return [part, ~part if part.dtype == torch.bool else part + 2]

    with pytest.raises(SettingError, match=f"Masks must give whole numbers of samples, got {part.dtype}"):
        Masks()(torch.zeros(4, dtype=torch.int64), 2, 1, torch.Generator())


def test_lists_do_as_well():
    class Lists(Partition):
        def assign(self, targets, n_clients, n_classes, generator):
            return [[2, 0], [1, 3]]

    parts = Lists()(torch.zeros(4, dtype=torch.int64), 2, 1, torch.Generator())
    assert [part.tolist() for part in parts] == [[0, 2], [1, 3]]


def test_parts_are_sorted_and_need_not_hold_everything():
    parts = Given([2, 0], [1])(torch.zeros(4, dtype=torch.int64), 2, 1, torch.Generator())
    assert [part.tolist() for part in parts] == [[0, 2], [1]]


def test_ranges_of_ones_own_settings_are_checked():
    class Mine(Partition):
        def __init__(self, power: NonNegativeFloat):
            self.power = power

        def assign(self, targets, n_clients, n_classes, generator):
            return []

    with pytest.raises(SettingError, match="mine needs power >= 0, got -1"):
        Mine(-1.0)
