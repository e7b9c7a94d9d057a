"""A federation as it is, in memory: which client holds which samples, or which user made each sample."""

import hashlib
from collections.abc import Iterable
from operator import index
from typing import Any

import torch
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition
from lightning_fl.text import many


class Given(Partition):
    """Each client holds the samples that it is given.  Data modules make this of a list in a partition's place.

    Args:
        parts: For each client the numbers of its training samples, from 0; together all samples, none twice.

    Raises:
        SettingError: If they are no lists of numbers; when samples are dealt, if they are not all samples, each once.

    >>> Given([[0, 3], [1, 2]])(torch.zeros(4).long(), 2, 1, torch.Generator())
    [tensor([0, 3]), tensor([1, 2])]
    """

    def __init__(self, parts: Iterable[Any]):
        try:
            self._parts = [torch.as_tensor(part).flatten() for part in parts]
        except (TypeError, ValueError, RuntimeError) as error:
            raise SettingError(
                f"a partition in memory needs a list of sample numbers per client ({' '.join(str(error).split())}); "
                f"where each sample has a user, use fl.partition.Natural(users)."
            ) from error
        self.n_clients = len(self._parts)

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Hand out the parts; see the base class."""
        held = sum(map(len, self._parts))
        if held < len(targets):
            raise SettingError(f"every one of {len(targets)} samples needs a client, got {held}; leave out the others.")
        return self._parts

    def note(self, n_clients: int, n_classes: int) -> str | None:
        """Name the federation by a hash of who holds what; see the base class."""
        content = repr([sorted(part.tolist()) for part in self._parts]).encode()
        return f"{many(len(self._parts), 'client')} as given, content sha256:{hashlib.sha256(content).hexdigest()[:16]}"


class Natural(Given):
    """Each user is a client: writers of characters, speakers, hospitals; numbered in the order of the users' names.

    Args:
        users: The user of each training sample, a string or a whole number.

    Raises:
        SettingError: If a user is neither, some are strings and some numbers, or there is not one for each sample.

    >>> Natural(["bob", "ann", "bob", "cy"])(torch.zeros(4).long(), 3, 1, torch.Generator())
    [tensor([1]), tensor([0, 2]), tensor([3])]
    """

    def __init__(self, users: Iterable[Any]):
        held: dict[Any, list[int]] = {}
        try:
            for sample, user in enumerate(users):
                held.setdefault(user if isinstance(user, str) else index(user), []).append(sample)
            super().__init__(held[user] for user in sorted(held))
        except TypeError as error:
            raise SettingError(
                f"natural needs the user of each sample, all strings or all whole numbers ({error}); of a column of a "
                f"data frame leave out samples without a user."
            ) from error
