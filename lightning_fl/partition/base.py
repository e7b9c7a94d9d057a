"""How training samples are spread over clients."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked
from lightning_fl.text import many


class Partition(Checked, ABC):
    """Spread samples over clients: disjoint, covering, seeded, no client empty."""

    n_clients: int | None = None
    """The only number of clients it serves.  None: any."""
    covering: bool = True
    """Whether every sample has a client."""

    @abstractmethod
    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see `__call__`."""

    def __call__(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client.

        Args:
            targets: (N,) class of each sample.
            n_clients: How many clients to serve.
            n_classes: c.
            generator: Source of the shuffles.

        Returns:
            For each client the numbers of its samples, ascending.

        Raises:
            SettingError: If the partition cannot serve that many clients, or one would be empty; or if `assign` does
                not give each a part of the samples, none of them twice.
        """
        name, n = type(self).__name__, len(targets)
        if self.n_clients not in (None, n_clients):
            needed = many(self.n_clients or 0, "client")
            raise SettingError(
                f"{name} needs {needed}, got n_clients={n_clients}; set federation.n_clients={self.n_clients}."
            )
        assigned = self.assign(targets, n_clients, n_classes, generator)
        if not isinstance(assigned, Sequence):
            raise SettingError(f"{name} must give a list of parts, got {type(assigned).__name__}.")
        parts = [torch.as_tensor(part) for part in assigned]
        others = [part.dtype for part in parts if len(part) and part.dtype not in (torch.int32, torch.int64)]
        if others:
            raise SettingError(f"{name} must give whole numbers of samples, got {others[0]}.")
        parts = [part.long().sort().values for part in parts]
        if len(parts) != n_clients:
            raise SettingError(f"{name} must give each of {n_clients} clients a part, got {len(parts)} parts.")
        if any(len(part) and (part[0] < 0 or part[-1] >= n) for part in parts):
            raise SettingError(f"{name} must give numbers of samples, 0 to {n - 1}, got others.")
        empty = [client for client, part in enumerate(parts) if not len(part)]
        if empty:
            raise SettingError(
                f"every client needs a sample, got none for {len(empty)} of {n_clients} clients (first: {empty[0]}) "
                f"from {len(targets)} samples; lower federation.n_clients."
            )
        times = torch.cat(parts).bincount()
        if times.max() > 1:
            raise SettingError(
                f"{name} must give a sample to one client, got sample {times.argmax()} {times.max()} times."
            )
        return parts

    def with_users(self, users: Sequence[Any] | None) -> "Partition":
        """Give the partition of samples that these users have made; by default this one, which does not ask.

        Args:
            users: The user of each training sample.  None: the data do not say.
        """
        return self

    def note(self, n_clients: int, n_classes: int) -> str | None:
        """Say what a person should know about the partition over that many clients; by default nothing."""
        return None


def shuffled_classes(targets: Tensor, n_classes: int, generator: torch.Generator) -> list[Tensor]:
    """List for each class the numbers of its samples, shuffled."""
    members = [(targets == z).nonzero().flatten() for z in range(n_classes)]
    return [index[torch.randperm(len(index), generator=generator)] for index in members]


def cut(index: Tensor, shares: Tensor) -> list[Tensor]:
    """Cut an index list into consecutive pieces proportional to shares (N * cumulative share, rounded half up)."""
    bounds = (len(index) * shares.double().cumsum(0) / shares.double().sum() + 0.5).long()
    return list(index.tensor_split(bounds[:-1].cpu()))[: len(shares)]
