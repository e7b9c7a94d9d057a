"""End a run between two rounds on Ctrl-C or SIGTERM, with everything saved."""

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytorch_lightning as pl

from lightning_fl.updates.exchange import anywhere

_NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class GracefulStop(pl.Callback):
    """On the first Ctrl-C or SIGTERM, finish the round and stop; on the second, stop at once.

    Lightning's own handling leaves a round half-done; this leaves a state from which the run resumes exactly.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        """What stopped the run, if something did: Ctrl-C or SIGTERM."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take over both signals (in the main thread, the only one in which Python allows it).

        Lightning has taken over SIGTERM just before, and gives both back when training ends, however it ends.

        Raises:
            SystemExit: If SIGTERM came in between; no round has begun.
        """
        if threading.current_thread() is not threading.main_thread():
            return

        def stop(signum: int, frame: FrameType | None) -> None:
            if self.received is not None:
                raise SystemExit(128 + signum)
            self.received = _NAMES[signum]
            trainer.should_stop = trainer.should_stop or trainer.world_size == 1
            if trainer.is_global_zero:
                print(f"\n{self.received}: stopping after this round; a second one stops at once.", file=sys.stderr)

        for number in _NAMES:
            signal.signal(number, stop)
        if trainer.received_sigterm:
            raise SystemExit(128 + signal.SIGTERM)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop all processes after the same round, whichever of them was told to."""
        if trainer.world_size > 1 and anywhere(self.received is not None, trainer.strategy.root_device):
            self.received = self.received or "a signal to another process"
            trainer.should_stop = True
