"""Rounds that are kept for an audit: inner products between the updates, which tell little of them, or the updates."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from jaxtyping import Float64
from torch import Tensor
from typing_extensions import override

from lightning_fl import files
from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import DataError, SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.exchange import world
from lightning_fl.updates.updates import Updates

FOLDER = "rounds"
Keep = Literal["gram", "updates"]


def keep_round(folder: Path, number: int, updates: Updates, keep: Keep) -> None:
    """Write one round into ``rounds/NUMBER.pt`` of a folder; of several processes all ask, and the first one writes.

    Later rounds that are there are an earlier run's, and removed.

    Args:
        folder: The run's.
        number: From 1.
        updates: The round's updates.
        keep: "gram": the (n, n) inner products.  "updates": the (n, d) updates.
    """
    held = updates.gram if keep == "gram" else updates.rows.cpu()
    ids = range(updates.n) if updates.ids is None else updates.ids
    content = {"ids": [int(client) for client in ids], "weights": updates.data_weights, keep: held}
    if world() == 1 or dist.get_rank() == 0:
        for path in (folder / FOLDER).glob("*.pt"):
            if path.stem.isdigit() and int(path.stem) > number:
                path.unlink()
        files.save(folder / FOLDER / f"{number}.pt", content)


@dataclass(frozen=True)
class KeptRound:
    """A round as it was kept.

    Args:
        number: From 1.
        updates: Its rows; of a round that kept inner products n rows of length n with the same ones.
        whole: Whether these are the updates themselves.
    """

    number: int
    updates: Updates
    whole: bool

    @property
    def ids(self) -> list[int]:
        """Number of each row's client."""
        return list(self.updates.ids or ())


def kept_rounds(folder: Path) -> Iterator[KeptRound]:
    """Read what a run has kept, in order.

    Raises:
        DataError: If it has kept nothing, or a file is damaged.
    """
    paths = sorted((folder / FOLDER).glob("*.pt"), key=lambda path: int(path.stem) if path.stem.isdigit() else 0)
    if not paths:
        raise DataError(
            f"an audit needs kept rounds, got none in {folder / FOLDER}; run with RobustStrategy(..., folder=FOLDER, "
            f'keep="gram"), or with lightning_fl.audit.kept.Kept(RULE, FOLDER) as the rule.'
        )
    for path in paths:
        held = files.load(path)
        rows = held["updates"] if "updates" in held else rows_of(held["gram"])
        yield KeptRound(int(path.stem), Updates(rows, held["weights"], held["ids"]), "updates" in held)


def rows_of(gram: Float64[Tensor, "n n"]) -> Float64[Tensor, "n n"]:
    """Give n rows with these inner products; a row of which they are not finite is NaN.

    Whatever goes by inner products alone, as most weightings do, cannot tell them from the updates.

    >>> rows = rows_of(torch.tensor([[4.0, 2.0], [2.0, 1.0]]).double())
    >>> (rows @ rows.T).round(decimals=6)
    tensor([[4., 2.],
            [2., 1.]], dtype=torch.float64)
    """
    broken = ~gram.diagonal().isfinite()
    values, vectors = torch.linalg.eigh(gram.masked_fill(broken | broken[:, None], 0.0))
    rows: Tensor = vectors * values.clamp(min=0).sqrt()
    return rows.masked_fill(broken[:, None], torch.nan)


class Kept(Wrapper):
    """Keep each round of a simulated run for an audit; the rule does what it would do without.

    Args:
        rule: Any rule.
        folder: Where ``rounds`` is written; that of the run.
        keep: See `keep_round`.

    Raises:
        SettingError: When training begins, if another run has kept its rounds there.
    """

    def __init__(self, rule: Aggregator, folder: str, keep: Keep = "gram"):
        super().__init__(rule)
        self.folder = folder
        self.keep = keep
        self._last: tuple[int, Updates] | None = None

    @override
    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        return self.rule.kappa(n, b, equal)

    @override
    def on_train_start(self, trainer: Any, *args: Any) -> None:
        """Refuse a folder with rounds of another run; see the base class.

        Raises:
            SettingError: If there are some, and this run does not go on from a checkpoint.
        """
        if not trainer.global_step and any(Path(self.folder, FOLDER).glob("*.pt")):
            raise SettingError(
                f"each run is kept in a folder of its own, got {self.folder} with rounds of an earlier one; give "
                f"another, or remove {Path(self.folder, FOLDER)}."
            )
        super().on_train_start(trainer, *args)

    @override
    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        self._last = server.round.index + 1, updates
        return aggregated(self.rule, updates, server)

    @override
    def on_train_batch_end(self, *args: Any) -> None:
        if self._last is not None:
            keep_round(Path(self.folder), *self._last, self.keep)
        super().on_train_batch_end(*args)
