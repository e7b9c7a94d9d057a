"""Training runs of a fraction of a second, in the federation of `tests.world`."""

import signal
import warnings
from contextlib import contextmanager
from functools import partial

import pytorch_lightning as pl
from torch.optim import SGD

from lightning_fl import FederatedDataModule, FederatedModule, Federation
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.partition.iid import Iid


class Corners(FederatedDataModule):
    """18 training and 9 test samples of three classes."""

    def load(self):
        return world.samples(6), world.samples(3, seed=1)


def data(federation=None, partition=None, server_samples=2):
    """The data module, for four honest clients unless told otherwise."""
    return Corners(
        partition=partition or Iid(),
        federation=federation or Federation(4, 0, "supplement", "uniform"),
        server_samples=server_samples,
        seed=0,
        partition_seed=0,
        eval_batch_size=4,
    )


def module(learning_rate=0.1, **settings):
    """The federated module with a linear model."""
    return FederatedModule(world.model(), Gradient(), partial(SGD, lr=learning_rate), **settings)


def trainer(callbacks=(), rounds=6, **settings):
    """A trainer that evaluates every second round and keeps nothing."""
    quiet = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        "check_val_every_n_epoch": None,
        "val_check_interval": 2,
        "log_every_n_steps": 1,
    }
    return pl.Trainer(max_steps=rounds, callbacks=list(callbacks), **(quiet | settings))


def fit(trainer, module_=None, data_=None, ckpt_path=None):
    """Fit and return the module."""
    module_ = module_ or module()
    with quiet():
        trainer.fit(module_, datamodule=data_ or data(), ckpt_path=ckpt_path)
    return module_


def evaluate(trainer, module_, data_=None):
    """Evaluate."""
    with quiet():
        trainer.test(module_, datamodule=data_ or data(), verbose=False)


@contextmanager
def interrupts():
    """Give SIGINT back: Lightning keeps it after a KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def quiet():
    """Lightning advises on data loaders, which a federation does not use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        yield
