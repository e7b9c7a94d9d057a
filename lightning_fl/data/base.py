"""The data of a federation: load, spread over clients, keep the server's few samples, hand out rounds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pytorch_lightning as pl
import torch

from lightning_fl import seeding
from lightning_fl.errors import SettingError
from lightning_fl.federation import Federation
from lightning_fl.partition.base import Partition, shuffled_classes
from lightning_fl.samples import Batches, ClientBatch, RoundBatch, Samples


class FederatedDataModule(pl.LightningDataModule, ABC):
    """Hands out one `RoundBatch` a training step; data sets say only how to fetch and load themselves.

    Data live as tensors on the trainer's device; a round gathers by index.

    Args:
        partition: Spreads the training samples over the clients that hold data.
        federation: Who takes part.
        server_samples: Samples of each class that the server holds, at least 0.  They are drawn from the training
            samples and stay with their clients too (as in the BOBA authors' code).
        seed: Seed of the run.
        partition_seed: Seed of the partition and of the server's draw.
        eval_batch_size: Samples at a time in evaluation.

    Note:
        The papers evaluate on the test set during training and select nothing by it; so does this module.
    """

    def __init__(
        self,
        partition: Partition,
        federation: Federation,
        server_samples: int,
        seed: int,
        partition_seed: int,
        eval_batch_size: int,
    ):
        super().__init__()
        if server_samples < 0:
            raise SettingError(f"data.server_samples must be at least 0, got {server_samples}.")
        if eval_batch_size < 1:
            raise SettingError(f"data.eval_batch_size must be at least 1, got {eval_batch_size}.")
        self.partition = partition
        self.federation = federation
        self.server_samples = server_samples
        self.seed = seed
        self.partition_seed = partition_seed
        self.eval_batch_size = eval_batch_size
        self.ready = False

    @abstractmethod
    def load(self) -> tuple[Samples, Samples]:
        """Load the training and test samples, which `prepare_data` has put in place."""

    def setup(self, stage: str | None = None) -> None:
        """Load and partition; the second call finds everything done.

        Raises:
            SettingError: If the partition cannot serve the clients, or a class is missing from the server's data.
        """
        if self.ready:
            return
        train, test = self.load()
        targets = train.targets
        parts = self.partition(
            targets,
            self.federation.n_clients,
            train.n_classes,
            seeding.generator(self.partition_seed, "partition"),
        )
        server = self._draw_server(train) if self.server_samples else []
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        self.train, self.test = train.to(device), test.to(device)
        self.clients = ClientBatch(self.train, [part.to(device) for part in parts], range(len(parts)))
        self.server = ClientBatch(self.train, [index.to(device) for index in server], range(-1, -1 - len(server), -1))
        self.ready = True

    def _draw_server(self, train: Samples) -> list[torch.Tensor]:
        draw = seeding.generator(self.partition_seed, "server samples")
        classes = shuffled_classes(train.targets, train.n_classes, draw)
        for z, members in enumerate(classes):
            if len(members) < self.server_samples:
                raise SettingError(
                    f"the server needs {self.server_samples} samples of every class, got {len(members)} of class {z}; "
                    f"lower data.server_samples."
                )
        return [members[: self.server_samples] for members in classes]

    @property
    def n_classes(self) -> int:
        """c, the number of classes."""
        return self.train.n_classes

    def round(self, index: int) -> RoundBatch:
        """The participants of round ``index``, from 0.

        Supplementary Byzantine clients, who hold no data, train on copies of the first clients' where they train.
        """
        honest, byzantine = self.federation.honest_ids, self.federation.byzantine_ids
        parts = self.clients.indices
        return RoundBatch(
            index,
            ClientBatch(self.train, [parts[i] for i in honest], honest),
            ClientBatch(self.train, [parts[i % len(parts)] for i in byzantine], byzantine),
            self.federation.weights(self.clients.sizes),
            self.server,
            self.seed,
        )

    def train_dataloader(self) -> "Rounds":
        """The rounds of this run."""
        return Rounds(self)

    def val_dataloader(self) -> Batches:
        """The test samples (see the class's note)."""
        return self.test.batches(self.eval_batch_size)

    def test_dataloader(self) -> Batches:
        """The test samples."""
        return self.test.batches(self.eval_batch_size)

    def transfer_batch_to_device(self, batch: object, device: torch.device, dataloader_idx: int) -> object:
        """Return the batch as it is: the data lie on the device already."""
        return batch


@dataclass(frozen=True)
class Rounds:
    """A training loader whose items are rounds; it goes on where the trainer's ``global_step`` stands."""

    data: FederatedDataModule

    def __len__(self) -> int:
        return self._trainer.max_steps

    def __iter__(self) -> Iterator[RoundBatch]:
        return map(self.data.round, range(self._trainer.global_step, len(self)))

    @property
    def _trainer(self) -> pl.Trainer:
        if self.data.trainer is None or self.data.trainer.max_steps < 1:
            raise SettingError("a run needs its number of rounds; set trainer.max_steps to at least 1.")
        return self.data.trainer
