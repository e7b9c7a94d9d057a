"""Rules of distances agree with their loops however far the updates lie from the origin."""

import numpy as np
import pytest
import torch

from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.rage import Rage
from tests.aggregator import reference

# The rule, its loop, and whether it chooses among the rows.
LOOPS = {
    "krum": (lambda x, f: Krum(f)(x), lambda x, f: reference.krum(x, f), True),
    "multi_krum": (lambda x, f: MultiKrum(f)(x), lambda x, f: reference.multi_krum(x, f), True),
    "geometric_median": (
        lambda x, f: GeometricMedian()(x),
        lambda x, f: reference.geometric_median(x, EQUAL, 100),
        False,
    ),
    "rage": (lambda x, f: Rage(f)(x), lambda x, f: reference.rage(x, f), False),
    "rage, centred": (lambda x, f: Rage(f, True)(x), lambda x, f: reference.rage(x, f, True), False),
    "boba": (lambda x, f: Boba(f)(x[3:], x[:3]), lambda x, f: reference.boba(x[3:], x[:3], f)[0], False),
}
EQUAL = np.full(25, 1 / 25)


# Sums of rows of 1e30 and others are beyond the loops; these choose.
@pytest.mark.parametrize(
    ("name", "hostile"), [*((name, False) for name in LOOPS), *((name, True) for name in LOOPS if LOOPS[name][2])]
)
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6, 1e7])
def test_agrees_with_the_loop_at_any_offset(name, offset, hostile):
    """Twelve problems.  Krum's choice is exact; the others are off by less than 1e-4 of the spread."""
    rule, loop, _ = LOOPS[name]
    for seed in range(12):
        draw = np.random.default_rng(seed)
        x = draw.normal(size=(25, 300)) + (offset * draw.normal(size=300)).round()
        if hostile:
            x[3:10] = 1e30
        expected, rows = loop(x, 8), torch.from_numpy(x)
        if hostile:
            rows = torch.cat([rows, torch.full((1, 300), torch.nan)])
        found = rule(rows, 9 if hostile else 8).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0 if name == "krum" else 1e-4)
