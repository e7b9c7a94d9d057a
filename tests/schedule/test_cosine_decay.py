"""The cosine against torch's own, which begins to rise after the run."""

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from lightning_fl import SettingError
from lightning_fl.schedule.cosine_decay import cosine_decay


def test_it_is_torch_s_until_the_run_ends():
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs, rate = CosineAnnealingLR(optimizer, T_max=50), cosine_decay(50)
    for finished in range(50):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate(finished), rel=1e-9)
        optimizer.step()
        theirs.step()
    assert rate(50) == rate(49) > 0


def test_a_run_without_an_end_is_refused():
    with pytest.raises(SettingError, match="rounds"):
        cosine_decay(-1)
