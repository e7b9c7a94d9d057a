"""The progress bar: round, loss, accuracy, time left."""

from math import inf
from time import perf_counter
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm, TQDMProgressBar


class RoundBar(TQDMProgressBar):
    """Lightning's bar, counting rounds; a resumed run starts where it stopped, and evaluation has no bar.

    It is drawn ten times a second at most.
    """

    _drawn = -inf

    def init_validation_tqdm(self) -> Tqdm:
        """Hide the evaluation's bar."""
        return Tqdm(disable=True)

    init_test_tqdm = init_validation_tqdm

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Show rounds, from the one the run starts at."""
        bar = self.train_progress_bar
        bar.total = trainer.max_steps
        bar.initial = bar.n = bar.last_print_n = trainer.global_step
        bar.set_description("Round")

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Advance by a round."""
        bar = self.train_progress_bar
        if bar.disable or not self._should_update(trainer.global_step, trainer.max_steps):
            return
        bar.n = trainer.global_step
        now = perf_counter()
        if now - self._drawn >= bar.mininterval or trainer.global_step == trainer.max_steps:
            self._drawn = now
            bar.set_postfix(self.get_metrics(trainer, pl_module))

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Loss of the honest clients and the last measured accuracy."""
        metrics = trainer.callback_metrics
        shown: dict[str, int | str | float | dict[str, float]] = {}
        if "loss" in metrics:
            shown["loss"] = f"{metrics['loss'].item():.4g}"
        if "accuracy" in metrics:
            shown["accuracy"] = f"{metrics['accuracy'].item():.1%}"
        return shown
