"""The data of a federation: load, spread over clients, keep the server's few samples, hand out rounds."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytorch_lightning as pl
import torch
from annotated_types import Ge, Le

from lightning_fl import seeding
from lightning_fl.errors import DataError, SettingError
from lightning_fl.federation import Federation
from lightning_fl.partition.base import Partition, shuffled_classes
from lightning_fl.ranges import Checked, Fraction, NonNegativeInt, PositiveInt
from lightning_fl.samples import Augment, Batches, ClientBatch, RoundBatch, Samples
from lightning_fl.text import many

Noise = Literal["gaussian", "shot", "impulse", "speckle"]
GivenPartition = Annotated[Partition | list[Any] | tuple[Any, ...] | None, "a Partition such as fl.partition.Iid()"]
GivenFederation = Annotated[Federation | None, "a Federation such as fl.Federation(100, n_byzantine=15)"]


class FederatedDataModule(Checked, pl.LightningDataModule, ABC):
    """Hand out one `RoundBatch` per training step; a data set only has to say how to fetch and load itself.

    Data live as tensors on the trainer's device; a round gathers by index.

    Args:
        partition: Spreads the training samples over the clients that hold data; or a list with the numbers of each
            client's samples, `Given`.  None: `Pathological`.
        federation: The clients, and which of them attack.  None: 100 honest clients and 15 Byzantine ones beside them.
        server_samples: Samples of each class that the server holds, drawn from the training samples: one number, or
            one for each class; at least 0, and all 0 or none.  None: 20, or as many as the rarest class has.
        seed: Seed of the run.
        partition_seed: Seed of who holds what: the partition, the draws of the server, of validation samples and of the
            Byzantine clients, noise and corruptions.  None: the run's.
        eval_batch_size: Samples at a time in evaluation.
        server_held_out: False: they stay with their clients too (as in the BOBA authors' code).  True: no client has
            them.
        server_noise: Noise on the server's images: gaussian, shot, impulse or speckle, as `add_noise` has them.
        corruption: Severity, 1 to 5, of the common corruption that each client draws for its images; the server's and
            the test images stay clean.  None: clean.
        corruption_cache: Folder that keeps corrupted images.
        validation_share: Share of each client's samples, rounded, kept from training, for choosing settings: the
            accuracy on all of these is measured beside that on the test samples.  In (0, 1).  None: none.
        augment: "crop_flip": whenever a client uses an image, it has a black border of 4 added, is cropped to its size
            anywhere and, half the time, mirrored; the server's images and those of evaluations stay.  None: as it is.
        train_per_class: Training samples of each class, at least 1: the first after one shuffle, the same in every run,
            or as many as there are.  None: all.
        client_scores: Whether each evaluation has mean, worst and 10 % quantile of the honest clients' accuracies, each
            client tested on classes in the proportions of its own samples (`lightning_fl.evaluation.client_scores`).

    Note:
        The papers evaluate on the test set during training and select nothing by it; so does this module.  Set
        ``validation_share`` to select settings.
    """

    class_names: Sequence[str] | None = None
    """Names of the classes, in the order of their numbers, where the data have them."""
    users: list[Any] | None = None
    """The user of each training sample, where the data say so."""
    tokenizer: Any = None
    """Of texts, once loaded: what has numbered their tokens, of the library tokenizers."""

    def __init__(
        self,
        partition: GivenPartition = None,
        federation: GivenFederation = None,
        server_samples: NonNegativeInt | Sequence[NonNegativeInt] | None = 20,
        seed: int = 0,
        partition_seed: int | None = None,
        eval_batch_size: PositiveInt = 10000,
        server_held_out: bool = False,
        server_noise: Noise | None = None,
        corruption: Annotated[int, Ge(1), Le(5)] | None = None,
        corruption_cache: str | None = None,
        validation_share: Fraction | None = None,
        augment: Augment | None = None,
        client_scores: bool = False,
        train_per_class: PositiveInt | None = None,
    ):
        super().__init__()
        server_samples = getattr(server_samples, "tolist", lambda: server_samples)()  # an array's numbers
        if isinstance(server_samples, Collection):
            server_samples = [int(count) for count in server_samples]
            if not server_samples or (0 in server_samples and any(server_samples)):
                raise SettingError(f"server_samples needs at least 1 of every class, if of any, got {server_samples}.")
        if partition is None:
            from lightning_fl.partition.pathological import Pathological

            partition = Pathological()
        if not isinstance(partition, Partition):
            from lightning_fl.partition.natural import Given

            partition = Given(list(partition))
        self.partition = partition
        self.federation = Federation(seed=seed) if federation is None else federation
        self.server_samples = server_samples
        self.server_held_out = server_held_out
        self.seed = seed
        self.partition_seed = seed if partition_seed is None else partition_seed
        self._follow = {"partition": partition_seed is None, "federation": federation is None}
        self.eval_batch_size = eval_batch_size
        self.server_noise = server_noise
        self.corruption = corruption
        self.corruption_cache = corruption_cache
        self.validation_share = validation_share
        self.augment = augment
        self.client_scores = client_scores
        self.train_per_class = train_per_class
        self.validation: Samples | None = None
        """The samples kept for choosing settings, if any."""
        self.corruptions: list[str] = []
        """The corruption that each client drew."""
        self.ready = False

    def reseeded(self, seed: int, attacked: bool = True) -> "FederatedDataModule":
        """Copy the data for a run with another seed; samples in memory are shared.

        Args:
            seed: The run's.  Partition and federation follow it unless they were made with a seed of their own.
            attacked: False: no client is Byzantine.
        """
        self.check_made()
        other = copy(self)
        other.seed, other.ready, other.trainer, other.validation = seed, False, None, None
        if self._follow["partition"]:
            other.partition_seed = seed
        changes = {"seed": seed} if self._follow["federation"] else {}
        other.federation = self.federation.replace(**changes, **({} if attacked else {"n_byzantine": 0}))
        return other

    @abstractmethod
    def load(self) -> tuple[Samples, Samples]:
        """Load the training and test `Samples`, which `prepare_data` has put in place."""

    def setup(self, stage: str | None = None) -> None:
        """Load and partition, and move everything to the trainer's device; a later call only moves.

        Raises:
            SettingError: If the partition cannot serve the clients, a class is missing from the server's data, or
                `load` gives something else than two `Samples`.
            DataError: If these do not fit together.
        """
        self.check_made()
        if not self.ready:
            self._load_and_partition()
        self.place(self.trainer.strategy.root_device if self.trainer else torch.device("cpu"))

    def check_made(self) -> None:
        """Check that a class of a user's own has called this one's constructor.

        Raises:
            SettingError: If it has not.
        """
        if "ready" not in vars(self):
            raise SettingError(f"{type(self).__name__} has no partition yet; call super().__init__() in its __init__.")

    def _load_and_partition(self) -> None:
        (train, test), users = self._loaded(), self.users
        if self.train_per_class is not None:
            chosen = self._first_of_each_class(train, self.train_per_class)
            train = replace(train, inputs=train.inputs[chosen], targets=train.targets[chosen])
            users = None if users is None else [users[i] for i in chosen.tolist()]
        self.dealt = self.partition.with_users(users)
        parts = self.dealt(
            train.targets,
            self.federation.n_clients,
            train.n_classes,
            seeding.generator(self.partition_seed, "partition"),
        )
        everything = parts
        parts, kept = self._keep(parts)
        server = self._draw_server(train, kept)
        if self.server_held_out:
            parts = self._without(parts, server)
        self.server = self._server_batch(train, server)
        self.train = train if self.corruption is None else self._corrupted(train, everything)
        if len(kept):
            self.validation = replace(self.train, inputs=self.train.inputs[kept], targets=self.train.targets[kept])
        if self.augment is not None:
            _need_images(train, "augment", (1, 3))
            self.train = replace(self.train, augment=self.augment)
        self.test = test
        self.clients = ClientBatch(self.train, parts, range(len(parts)))
        self.supplement = self._draw_supplement(parts)
        self.ready = True

    def _loaded(self) -> tuple[Samples, Samples]:
        """Load, and check what perhaps a user's own class loads."""
        loaded: object = self.load()
        match loaded:
            case Samples() as train, Samples() as test:
                check_alike(train, test)
                if self.class_names is not None and len(self.class_names) != train.n_classes:
                    raise DataError(f"{train.n_classes} classes need as many names, got {len(self.class_names)}.")
                return train, test
        parts = loaded if isinstance(loaded, tuple | list) else [loaded]
        raise SettingError(
            f"load of {type(self).__name__} must return two lightning_fl.Samples, for training and test, got "
            f"{' and '.join(type(part).__name__ for part in parts) or 'none'}."
        )

    def _first_of_each_class(self, train: Samples, n: int) -> torch.Tensor:
        classes = shuffled_classes(train.targets, train.n_classes, seeding.generator(0, "train_per_class"))
        return torch.cat([members[:n] for members in classes]).sort().values

    def place(self, device: torch.device, dtype: torch.dtype | None = None) -> None:
        """Move everything to a device, to be computed on in a type; None: as before."""
        if (self.train.targets.device, self.train.dtype) == (device, dtype or self.train.dtype):
            return
        self.train, self.test = self.train.to(device, dtype), self.test.to(device, dtype)
        self.validation = None if self.validation is None else self.validation.to(device, dtype)
        self.clients = self.clients.to(device, self.train)
        self.supplement = [part.to(device) for part in self.supplement]
        self.server = self.server.to(device, self.server.samples.to(device, dtype) if len(self.server) else self.train)

    def _draw_supplement(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Draw what supplementary Byzantine clients train on, unless it is a copy: an average number of all samples."""
        if self.federation.byzantine_data != "iid":
            return []
        everything = torch.cat(list(parts)).sort().values
        size = max(round(len(everything) / len(parts)), 1)
        drawn = []
        for client in self.federation.byzantine_ids:
            draw = seeding.generator(self.partition_seed, "byzantine data", client)
            drawn.append(everything[torch.randperm(len(everything), generator=draw)[:size]].sort().values)
        return drawn

    def _keep(self, parts: list[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Split off validation samples: what clients train on, and the numbers of the samples kept from it."""
        if self.validation_share is None:
            return parts, torch.empty(0, dtype=torch.int64)
        left, kept = [], []
        for client, part in enumerate(parts):
            order = torch.randperm(len(part), generator=seeding.generator(self.partition_seed, "validation", client))
            n = min(round(self.validation_share * len(part)), len(part) - 1)
            kept.append(part[order[:n]])
            left.append(part[order[n:].sort().values])
        found = torch.cat(kept).sort().values
        if not len(found):
            raise SettingError(
                f"validation_share={self.validation_share} of clients with at most {max(map(len, parts))} samples "
                f"keeps none; raise it."
            )
        return left, found

    def _draw_server(self, train: Samples, kept: torch.Tensor) -> list[torch.Tensor]:
        """Draw the server's samples of each class, none of them kept for validation; empty if it holds none."""
        given = self.server_samples
        if given is None:
            counts = [batch.bincount(minlength=train.n_classes) for batch in (train.targets, train.targets[kept])]
            given = min(20, int((counts[0] - counts[1]).min()))
        wanted = [given] * train.n_classes if isinstance(given, int) else list(given)
        if len(wanted) != train.n_classes:
            raise SettingError(
                f"server_samples needs one number, or one for each of {train.n_classes} classes, got "
                f"{len(wanted)} numbers."
            )
        if not any(wanted):
            return []
        draw = seeding.generator(self.partition_seed, "server samples")
        classes = shuffled_classes(train.targets, train.n_classes, draw)
        classes = [members[~torch.isin(members, kept)] for members in classes] if len(kept) else classes
        for z, (members, count) in enumerate(zip(classes, wanted, strict=True)):
            if len(members) < count:
                raise SettingError(
                    f"the server needs {many(count, 'sample')} of class {z}, got {len(members)}"
                    f"{' beside those kept for validation' if len(kept) else ''}; lower data.server_samples."
                )
        return [members[:count] for members, count in zip(classes, wanted, strict=True)]

    @staticmethod
    def _without(parts: Sequence[torch.Tensor], server: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """List what the clients have left when the server's samples are held out."""
        left = [part[~torch.isin(part, torch.cat([*server, part[:0]]))] for part in parts]
        empty = [client for client, part in enumerate(left) if not len(part)]
        if empty:
            raise SettingError(
                f"every client needs a sample, got none for client {empty[0]} once the server's are held out; lower "
                f"server_samples or set server_held_out=false."
            )
        return left

    def _server_batch(self, train: Samples, drawn: Sequence[torch.Tensor]) -> ClientBatch:
        """Make the server's virtual clients, one per class, on their own samples: clean, or with noise."""
        if not drawn:
            return ClientBatch(train, [], [])
        index = torch.cat(list(drawn))
        own = replace(train, inputs=train.inputs[index], targets=train.targets[index])
        if self.server_noise is not None:
            from lightning_fl.data.corruption import add_noise

            _need_images(own, "server_noise", (1, 3))
            draw = seeding.generator(self.partition_seed, "server noise")
            mean, std = (torch.tensor(values)[:, None, None] for values in (own.mean, own.std))
            own = replace(own, inputs=(add_noise(own.inputs / 255, self.server_noise, draw) - mean) / std)
        places = torch.arange(len(index)).split([len(members) for members in drawn])
        return ClientBatch(own, places, range(-1, -1 - len(drawn), -1))

    def _corrupted(self, train: Samples, parts: Sequence[torch.Tensor]) -> Samples:
        """The training images, each client's corrupted in its own way."""
        from lightning_fl.data.corruption import corrupt_clients

        assert self.corruption is not None
        _need_images(train, "corruption", (3,))
        cache = Path(self.corruption_cache or "data/corrupted")
        inputs, self.corruptions = corrupt_clients(train.inputs, parts, self.corruption, self.partition_seed, cache)
        return replace(train, inputs=inputs)

    @property
    def n_classes(self) -> int:
        """c, the number of classes."""
        return self.train.n_classes

    def round(self, index: int) -> RoundBatch:
        """The participants of round ``index``, from 0.

        Supplementary Byzantine clients, who hold no data, train on what ``federation.byzantine_data`` gives them.
        """
        honest, byzantine = self.federation.participants(index)
        return RoundBatch(
            index,
            self._clients(honest),
            self._clients(byzantine),
            self.federation.weights(self.clients.sizes, [*honest, *byzantine]),
            self.server,
            self.seed,
        )

    @property
    def everybody(self) -> ClientBatch:
        """All clients that may ever compute, honest ones first."""
        return self._clients([*self.federation.honest_ids, *self.federation.byzantine_ids])

    def _clients(self, ids: Sequence[int]) -> ClientBatch:
        parts = [*self.clients.indices, *self.supplement]
        return ClientBatch(self.train, [parts[i % len(parts)] for i in ids], ids)

    def train_dataloader(self) -> "Rounds":
        """The rounds of this run."""
        return Rounds(self)

    def val_dataloader(self) -> Batches:
        """The test samples (see the class's note); of several processes each evaluates some."""
        return self._share().batches(self.eval_batch_size)

    test_dataloader = val_dataloader

    def _share(self) -> Samples:
        """The test samples, or this process's share of them."""
        n = self.trainer.world_size if self.trainer else 1
        if n == 1:
            return self.test
        assert self.trainer is not None
        rank, size = self.trainer.global_rank, len(self.test)
        own = slice(size * rank // n, size * (rank + 1) // n)
        return replace(self.test, inputs=self.test.inputs[own], targets=self.test.targets[own])

    def transfer_batch_to_device(self, batch: object, device: torch.device, dataloader_idx: int) -> object:
        """Make the round of a number; a batch of test samples is as it should be: the data lie on the device."""
        return self.round(batch) if isinstance(batch, int) else batch


def check_alike(train: Samples, test: Samples) -> None:
    """Check that a model of the training samples can be tested.

    Raises:
        DataError: If the two differ in the number of classes, or in the inputs' shape or type.
    """
    if train.n_classes != test.n_classes:
        raise DataError(f"training and test samples need one n_classes, got {train.n_classes} and {test.n_classes}.")
    kinds = [torch.float32 if x.is_floating_point() else x.dtype for x in (train.inputs, test.inputs)]
    if kinds[0] != kinds[1]:
        scaled = ", bytes being scaled to [0, 1]" if torch.uint8 in kinds else ""
        raise DataError(f"training and test inputs need one type{scaled}, got {kinds[0]} and {kinds[1]}.")
    shapes = [tuple(samples.inputs.shape[1:]) for samples in (train, test)]
    if shapes[0] != shapes[1]:
        raise DataError(f"training and test inputs need one shape, got {shapes[0]} and {shapes[1]}.")


def _need_images(samples: Samples, setting: str, channels: tuple[int, ...]) -> None:
    shape = tuple(samples.inputs.shape[1:])
    if samples.inputs.dtype != torch.uint8 or len(shape) != 3 or shape[0] not in channels:
        kind = "colour images" if channels == (3,) else "images"
        raise SettingError(f"data.{setting} needs {kind}, got samples of shape {shape}; set it to null.")


@dataclass(frozen=True)
class Rounds:
    """A training loader of the rounds' numbers; it continues at the trainer's ``global_step``.

    `FederatedDataModule.transfer_batch_to_device` makes the rounds: before, a precision might convert what it is given.
    """

    data: FederatedDataModule

    def __len__(self) -> int:
        return self._trainer.max_steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._trainer.global_step, len(self)))

    @property
    def _trainer(self) -> pl.Trainer:
        if self.data.trainer is None or self.data.trainer.max_steps < 1:
            raise SettingError("a run needs its number of rounds; set trainer.max_steps to at least 1.")
        return self.data.trainer
