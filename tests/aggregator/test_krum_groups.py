import numpy as np
import pytest
import torch

from lightning_fl.aggregator.krum_groups import FromKrum
from tests.aggregator import reference

N, F = 11, 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("broken", [None, 4])
@pytest.mark.parametrize(("m", "chosen"), [(1, 1), (4, 4), (None, N - F)])
@pytest.mark.parametrize(("neighbours", "fewer"), [("n-f-2", 2), ("n-f-1", 1)])
def test_agrees_with_the_loop(neighbours, fewer, m, chosen, broken, dtype, draw):
    """Three groups of two coordinates; a row that is not finite counts as one of the f, and is not averaged."""
    blocks = torch.randn(3, N, 2, generator=draw, dtype=dtype)
    rest = [i for i in range(N) if i != broken]
    expected = np.full((3, N), np.nan)
    for group, rows in enumerate(blocks[:, rest].double().numpy()):
        scores = reference.krum_scores(rows, F - (broken is not None), fewer)
        answer = reference.mean_of_best(rows, scores, chosen)
        expected[group, rest] = [np.sqrt(np.sum((row - answer) ** 2)) for row in rows]
    if broken is not None:
        blocks[:, broken] = torch.nan
    before = blocks.clone()
    found = FromKrum(F, m, neighbours)(blocks)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=1e-12)
    torch.testing.assert_close(blocks, before, equal_nan=True)
