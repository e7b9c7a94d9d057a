"""The papers' schedules decay."""

from itertools import pairwise

import pytest

from lightning_fl.contract.test_schedule import NAMES, RATE, rates


@pytest.mark.parametrize("name", NAMES)
def test_rates_never_grow(name):
    found = rates(name, 3000)
    assert all(later <= earlier for earlier, later in pairwise(found))
    assert found[0] <= RATE
    assert found[-1] < found[0]
