"""The run's own record, beside any logger: one row a round, in plain CSV."""

import csv
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

from lightning_fl.module import FederatedModule

Row = dict[str, Any]


class Record(pl.Callback):
    """Write ``metrics.csv`` (one row a round) and ``weights.csv`` (the rule's weight of each client a round).

    Rows are appended after each evaluation and at the end.  They travel in checkpoints, so the files of a resumed run
    start at its first round.

    Args:
        folder: Where to write.
    """

    def __init__(self, folder: str | Path):
        self._started, self._earlier = perf_counter(), 0.0
        self.metrics = Table(Path(folder) / "metrics.csv")
        self.weights = Table(Path(folder) / "weights.csv")

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Keep the round's row."""
        assert isinstance(pl_module, FederatedModule)
        if pl_module.diverged:
            return
        self.metrics.add({"round": trainer.global_step, **outputs["metrics"]})
        if outputs["weights"] is not None:
            ids = map(str, batch.ids)
            self.weights.add({"round": trainer.global_step, **dict(zip(ids, outputs["weights"], strict=True))})

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the evaluation to the last row and write.

        Lightning also evaluates where a person stops a run.  That one stays out of the checkpoint (`on_test_end` has
        it): a run that goes on from there has the evaluations of one that never stopped.
        """
        assert isinstance(pl_module, FederatedModule)
        stopped = trainer.state.fn == TrainerFn.FITTING and trainer.should_stop and not pl_module.diverged
        if stopped and trainer.global_step % trainer.val_check_interval:
            return
        if self.metrics.rows and not trainer.sanity_checking:
            self.metrics.complete(pl_module.evaluation)
            self._flush()

    on_test_end = on_validation_end

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write what is left."""
        self._flush()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write what is left."""
        self._flush()

    @property
    def seconds(self) -> float:
        """How long the run has taken since this was made, and before the checkpoint that it goes on from."""
        return self._earlier + perf_counter() - self._started

    def state_dict(self) -> dict[str, Any]:
        """Rows and seconds so far."""
        return {"metrics": list(self.metrics.rows), "weights": list(self.weights.rows), "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint's rows and seconds."""
        self._earlier = state_dict["seconds"]
        self.metrics.restore(state_dict["metrics"])
        self.weights.restore(state_dict["weights"])

    def _flush(self) -> None:
        self.metrics.flush()
        self.weights.flush()


class Table:
    """Rows in memory, appended to a CSV file; written anew only when a row brings a new column or changes.

    Args:
        path: The file.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[Row] = []
        self._written = 0
        self._columns: list[str] = []

    def restore(self, rows: Iterable[Row]) -> None:
        """Start from these rows; the file is written anew."""
        self.rows, self._written, self._columns = list(rows), 0, []

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows.append(row)

    def complete(self, values: Row) -> None:
        """Add values to the last row."""
        if not values.items() <= self.rows[-1].items():
            self.rows[-1] = self.rows[-1] | values
            if self._written == len(self.rows):
                self._written = 0

    def flush(self) -> None:
        """Write the rows that are not in the file yet."""
        if self._written == len(self.rows):
            return
        fresh = self.rows[self._written :]
        columns = list(dict.fromkeys([*self._columns, *(name for row in fresh for name in row)]))
        if columns != self._columns:
            self._columns, self._written = columns, 0
        self._write(self.rows[self._written :], "a" if self._written else "w")
        self._written = len(self.rows)

    def _write(self, rows: Iterable[Row], mode: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open(mode, newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            if mode == "w":
                writer.writeheader()
            writer.writerows(rows)
