"""Checkpoints that are whole and hold their round's evaluation."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.trainer.states import TrainerFn

from lightning_fl import files
from lightning_fl.errors import DataError
from lightning_fl.module import FederatedModule


class RoundCheckpoint(Checkpoint):
    """Save one file every so many rounds, once everything about the round is done.

    A run that continues from a checkpoint does not evaluate that round again, so an evaluated round is saved after its
    evaluation and not before, as Lightning's ``ModelCheckpoint`` would.  Every checkpoint of the trainer is written
    and read by `WholeFiles`, unless it was given another plugin.

    Args:
        path: The file.
        every: Rounds from one checkpoint to the next, at least 1.
    """

    def __init__(self, path: Path, every: int):
        self.path = path
        self.every = every

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Choose how checkpoints are written and read."""
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = WholeFiles()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save a round that is not evaluated."""
        interval = trainer.val_check_batch if trainer.enable_validation else None
        if interval is None or trainer.global_step % interval:
            self._save(trainer, pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save a round that is evaluated; Lightning asks callbacks that save last."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._save(trainer, pl_module)

    def _save(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, FederatedModule)
        if trainer.global_step % self.every == 0 and not module.diverged:
            trainer.save_checkpoint(self.path)


class WholeFiles(TorchCheckpointIO):
    """Write a checkpoint next to the old one and put it in its place; explain one that cannot be read."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Write a checkpoint; the previous one stays until this one is whole.

        Raises:
            DataError: If it cannot be written.
        """
        files.save(Path(path), checkpoint)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = "cpu", weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint: tensors and plain Python values, nothing that could run, unless weights_only is False.

        Raises:
            DataError: If it is not there or is not a whole checkpoint.
        """
        checkpoint: dict[str, Any] = files.load(path, map_location, weights_only is not False)
        if not isinstance(checkpoint, dict) or not checkpoint.keys() >= _KEYS:
            raise DataError(
                f"{path} cannot be read: it holds something else than a run's checkpoint; move it away to begin again, "
                f"or give another one."
            )
        return checkpoint


# What training goes on from.
_KEYS = {"state_dict", "loops", "callbacks", "optimizer_states", "lr_schedulers", "global_step"}
