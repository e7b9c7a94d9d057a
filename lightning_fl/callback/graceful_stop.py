"""Ctrl-C ends a run between two rounds, with everything saved."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl


class GracefulStop(pl.Callback):
    """On the first Ctrl-C finish the round and stop; on the second stop at once.

    Lightning's own handling leaves a round half-done; this leaves a state from which the run resumes exactly.
    """

    def __init__(self) -> None:
        self._previous: Any = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take over SIGINT (in the main thread, where alone Python allows it).

        Not earlier: Lightning notes the handlers after ``on_fit_start``, and puts them back last of all.
        """
        if threading.current_thread() is not threading.main_thread():
            return

        def stop(signum: int, frame: FrameType | None) -> None:
            trainer.should_stop = True
            self._restore()
            print("\nStopping after this round (Ctrl-C again: at once) ...", file=sys.stderr, flush=True)

        self._previous = signal.signal(signal.SIGINT, stop)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give SIGINT back."""
        self._restore()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Give SIGINT back."""
        self._restore()

    def _restore(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None
