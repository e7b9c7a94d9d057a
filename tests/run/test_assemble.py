"""Parts of a run, made from its settings."""

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.run.assemble import make_model, make_trainer


@pytest.mark.parametrize(("precision", "bits"), [("32-true", torch.int32), ("64-true", torch.int64)])
def test_a_twin_starts_one_unit_in_the_last_place_away(precision, bits):
    def weights(**settings):
        given = [f"{key}={value}" for key, value in settings.items()]
        config = conf.compose("model.hidden=[4]", *given, f"trainer.precision={precision}", "run_dir=x", "run_name=x")
        return make_model(config)[1].weight.detach()

    plain, twin, others = weights(), weights(twin=1), [weights(twin=2), weights(twin=1, seed=1)]
    assert plain.dtype == torch.float32  # the round doubles it
    assert set((twin.view(bits) - plain.to(twin.dtype).view(bits)).flatten().tolist()) == {-1, 1}
    assert torch.equal(twin, weights(twin=1))
    assert not any(torch.equal(twin, other) for other in others)


@pytest.mark.parametrize("accelerator", ["gpu", "cuda"])
def test_a_gpu_that_is_not_there_is_missed_in_our_words(tmp_path, monkeypatch, accelerator):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    config = conf.compose(f"trainer.accelerator={accelerator}", "run_dir=x", "run_name=x")
    with pytest.raises(SettingError, match=rf"accelerator={accelerator} needs a GPU that torch finds, got none"):
        make_trainer(config, tmp_path, [])
