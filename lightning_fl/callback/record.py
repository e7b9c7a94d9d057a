"""The run's own record, beside any logger: one row per round, in plain CSV."""

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

from lightning_fl import files
from lightning_fl.errors import DataError
from lightning_fl.module import FederatedModule

Row = dict[str, Any]


class Record(pl.Callback):
    """Write ``metrics.csv`` (one row per round) and ``weights.csv`` (the rule's weight of each client in each round).

    Rows are appended after each evaluation, before each checkpoint and at the end.  A checkpoint holds how many there
    are and the last one; a run that continues from it reads the others back from the files, without later ones, so
    that its own files start at the first round and are those of a run that never stopped.

    Args:
        folder: Where to write.  None: nowhere; the rows stay in memory.
    """

    def __init__(self, folder: str | Path | None):
        self._started, self._earlier = perf_counter(), 0.0
        self._folder = None if folder is None else Path(folder).absolute()
        self._resumed: Path | None = None
        self.metrics = Table(self._folder and self._folder / "metrics.csv")
        self.weights = Table(self._folder and self._folder / "weights.csv")
        self.label_distributions: dict[int, list[float]] = {}
        """By client, the shares of the classes that the rule has estimated last."""
        self.first: Row | None = None
        """Accuracy and recalls before the first round: where curves start."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the initial model, unless the run continues from a checkpoint."""
        assert isinstance(pl_module, FederatedModule)
        if trainer.global_step == 0:
            self.first = pl_module.measured()
            for logger in trainer.loggers:
                logger.log_metrics(self.first, step=0)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the files to the first of several processes."""
        if not trainer.is_global_zero:
            self._folder = self.metrics.path = self.weights.path = None

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
        if outputs.get("label_distributions") is not None:
            self.label_distributions |= dict(zip(batch.ids, outputs["label_distributions"].tolist(), strict=True))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the evaluation to the last row and write.

        Lightning also evaluates where a person stops a run.  That one stays out of the checkpoint (`on_test_end` has
        it): a run that continues from there has the evaluations of one that never stopped.
        """
        assert isinstance(pl_module, FederatedModule)
        stopped = trainer.state.fn == TrainerFn.FITTING and trainer.should_stop and not pl_module.diverged
        if stopped and trainer.global_step % trainer.val_check_interval:
            return
        if not trainer.sanity_checking and trainer.global_step:
            if not self.metrics.rows:  # those before the checkpoint are lost
                self.metrics.add({"round": trainer.global_step})
            self.metrics.complete(pl_module.evaluation)
            self._flush()

    on_test_end = on_validation_end

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write what is left."""
        self._flush()

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write what is left; if that fails, too, the first error is the one to report."""
        for table in (self.metrics, self.weights):
            with suppress(DataError):
                table.flush()

    def holds(self, evaluation: Row) -> bool:
        """Whether the last round's row has an evaluation, so that there is no need for another one."""
        return bool(self.metrics.rows and evaluation) and evaluation.items() <= self.metrics.rows[-1].items()

    @property
    def seconds(self) -> float:
        """How long the run has taken since this was made, and before the checkpoint it continues from."""
        return self._earlier + perf_counter() - self._started

    def state_dict(self) -> dict[str, Any]:
        """What finds the rows again, the first evaluation, what the rule has estimated, and the seconds so far."""
        tables = {"metrics": self.metrics.state(), "weights": self.weights.state()}
        where = {} if self._folder is None else {"folder": str(self._folder)}
        estimated = {"label_distributions": dict(self.label_distributions), "first": self.first}
        return {**tables, **estimated, **where, "seconds": self.seconds}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put the rows on the disk before the checkpoint that counts them."""
        self._flush()
        self.metrics.sync()
        self.weights.sync()

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note where the checkpoint is: a run's folder may have been moved or copied since."""
        self._resumed = Path(trainer.ckpt_path).absolute() if trainer.ckpt_path else None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint's rows and seconds.

        Raises:
            DataError: If the files that should hold the rows do not.
        """
        self._earlier = state_dict["seconds"]
        self.label_distributions = dict(state_dict["label_distributions"])
        self.first = state_dict["first"]
        folders = [Path(state_dict["folder"])] if "folder" in state_dict else []
        if self._resumed is not None:
            beside = self._resumed.parent
            folders.insert(0, beside.parent if beside.name == "checkpoints" else beside)
        for table, state in [(self.metrics, state_dict["metrics"]), (self.weights, state_dict["weights"])]:
            table.read_back(folders, state["count"], state["last"])

    def _flush(self) -> None:
        self.metrics.flush()
        self.weights.flush()


class Table:
    """Rows in memory, appended to a CSV file; written anew only when a row brings a new column or changes.

    Args:
        path: The file.  None: there is none.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self.rows: list[Row] = []
        self._written = 0
        self._columns: list[str] = []

    def state(self) -> dict[str, Any]:
        """How many rows there are, and the last one: the same size in every round."""
        return {"count": len(self.rows), "last": self.rows[-1] if self.rows else None}

    def restore(self, rows: Iterable[Row]) -> None:
        """Start from these rows; the file is written anew."""
        self.rows, self._written, self._columns = list(rows), 0, []

    def read_back(self, folders: Sequence[Path], count: int, last: Row | None) -> None:
        """Start from the first rows of a file of an earlier run.

        Args:
            folders: Where that file may be; the first one that holds the rows is taken.
            count: How many rows.
            last: The last of them as the checkpoint has it: without an evaluation that was added later.

        Raises:
            DataError: If a file is there, but none holds the rows.
        """
        self.restore([])
        if last is None or self.path is None:
            return
        found = [path for path in (folder / self.path.name for folder in folders) if path.exists()]
        for path in found:
            rows = _first_rows(path, count, last)
            if rows is not None:
                return self.restore([*rows[:-1], last])
        if found:
            raise DataError(
                f"{found[0]} does not hold the {count} rows that were written before the checkpoint: it is damaged or "
                f"of another run; put the right file there, or remove it to go on without those rows."
            )
        print(f"{self.path.name} is not beside the checkpoint: its first {count} rows are lost.", file=sys.stderr)

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
        """Write the rows that are not in the file yet.

        Raises:
            DataError: If they cannot be written.
        """
        if self.path is None or self._written == len(self.rows):
            return
        fresh = self.rows[self._written :]
        columns = list(dict.fromkeys([*self._columns, *(name for row in fresh for name in row)]))
        columns.sort(key=lambda name: int(name) if name.isdigit() else -1)  # clients by number, whoever came first
        if columns != self._columns:
            self._columns, self._written = columns, 0
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns)
        if self._written:
            writer.writerows(fresh)
            files.append(self.path, text.getvalue().encode())
        else:
            writer.writeheader()
            writer.writerows(self.rows)
            files.write(self.path, text.getvalue())
        self._written = len(self.rows)

    def sync(self) -> None:
        """Wait until the file is on the disk."""
        if self.path is not None and self._written:
            files.sync(self.path)


def _first_rows(path: Path, count: int, last: Row) -> list[Row] | None:
    """Read that many rows; None if the last of them is not the given one, or `Table` has not written the file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            texts = list(islice(reader, count))
            if len(texts) < count or any(texts[-1].get(name) != str(value) for name, value in last.items()):
                return None
            return [{name: _number(text) for name, text in row.items() if text != ""} for row in texts]
    except (OSError, ValueError, TypeError, csv.Error):
        return None


def _number(text: str) -> int | float:
    """Read a number so that writing it again gives the same digits."""
    try:
        return int(text)
    except ValueError:
        return float(text)
