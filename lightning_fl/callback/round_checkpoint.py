"""Checkpoints that hold their round's evaluation."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.trainer.states import TrainerFn


class RoundCheckpoint(Checkpoint):
    """Save one file every so many rounds, and again once such a round is evaluated.

    A run that goes on from a checkpoint does not evaluate that round again, and Lightning's ``ModelCheckpoint`` saves
    before the evaluation.

    Args:
        path: The file.
        every: Rounds from one checkpoint to the next, at least 1.
    """

    def __init__(self, path: Path, every: int):
        self.path = path
        self.every = every

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save the round."""
        if trainer.global_step % self.every == 0:
            trainer.save_checkpoint(self.path)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the round with its evaluation; Lightning asks callbacks that save last."""
        if trainer.state.fn == TrainerFn.FITTING and trainer.global_step % self.every == 0:
            trainer.save_checkpoint(self.path)
