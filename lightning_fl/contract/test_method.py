"""Laws of every method in conf/method, found by looking there."""

import warnings

import pytest
import pytorch_lightning as pl

from lightning_fl import FederatedDataModule, FederatedModule, Federation
from lightning_fl.adversary.lie import Lie
from lightning_fl.contract import conf, world
from lightning_fl.contract.device import PretendedDevice, Waits
from lightning_fl.partition.iid import Iid


class _Corners(FederatedDataModule):
    """The federation of `world`, and more of its samples for testing."""

    def load(self):
        return world.samples(20), world.samples(5, seed=1)


@pytest.mark.parametrize("name", conf.names("method"))
def test_rounds_stay_on_a_gpu_and_seldom_wait_for_it(name):
    """One that is pretended, with its laws; the test samples are evaluated there, too."""
    composed = conf.compose(f"method={name}")
    client, server = conf.make_part(composed.client), conf.make_part(composed.server)
    rule = conf.make_part(composed.aggregator) if composed.get("aggregator") else None
    if hasattr(rule, "f"):
        rule.f = 2
    module = FederatedModule(world.model(), client, server)
    data = _Corners(Iid(), Federation(10, 2, "replacement"), server_samples=2, eval_batch_size=4)
    settings = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    with PretendedDevice() as gpu, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        seen = Waits(gpu)
        trainer = pl.Trainer(
            max_steps=3,
            callbacks=[part for part in (rule, Lie(0.7), seen) if part is not None],
            strategy=gpu.strategy(),
            val_check_interval=3,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            enable_model_summary=False,
            **settings,
        )
        trainer.fit(module, datamodule=data)
    assert module.diverged is None
    assert set(module.evaluation) >= {"accuracy", "recall/0"}
    assert seen.places == {gpu.device}
    assert rule is None or rule.searches or len(seen.waits) <= 2, seen.waits
    assert seen.copies == [], "a copy to a GPU waits for it, unless non_blocking=True"
