"""A federation as it is: which client holds which samples, or which user made each sample."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_fl import files
from lightning_fl.errors import DataError, SettingError
from lightning_fl.partition.base import Partition
from lightning_fl.ranges import PositiveInt
from lightning_fl.text import many, said

Order = Literal["sorted", "appearance"]


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
                f"a partition in memory needs a list of sample numbers per client ({said(error)}); "
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
    """Each user is a client: writers of characters, speakers, hospitals.

    Args:
        users: The user of each training sample, a string or a whole number.
        order: How clients are numbered.  "sorted": as the users' names are.  "appearance": as they come first.
        min_samples: Users with fewer samples are left out, with their samples.
        n_clients: Users in their order are cut into so many runs of the same number, give or take one, and each run is
            a client.  None: each user.

    Raises:
        SettingError: If a user is neither, some are strings and some numbers, or there is not one for each sample; or
            if fewer users than n_clients are left.

    >>> Natural(["bob", "ann", "bob", "cy"])(torch.zeros(4).long(), 3, 1, torch.Generator())
    [tensor([1]), tensor([0, 2]), tensor([3])]
    """

    def __init__(
        self,
        users: Iterable[Any],
        order: Order = "sorted",
        min_samples: PositiveInt = 1,
        n_clients: PositiveInt | None = None,
    ):
        held: dict[Any, list[int]] = {}
        try:
            for sample, user in enumerate(users):
                held.setdefault(user if isinstance(user, str) else index(user), []).append(sample)
            names = sorted(held)
        except TypeError as error:
            raise SettingError(
                f"natural needs the user of each sample, all strings or all whole numbers ({error}); of a column of a "
                f"data frame leave out samples without a user."
            ) from error
        names = names if order == "sorted" else list(held)
        parts = [held[user] for user in names if len(held[user]) >= min_samples]
        self._left_out = sum(map(len, held.values())) - sum(map(len, parts))
        if len(parts) < (n_clients or 1):
            raise SettingError(
                f"natural needs a user of {many(min_samples, 'sample')} or more for each of "
                f"{many(n_clients or 1, 'client')}, got {many(len(parts), 'such user')}; lower min_samples or "
                f"n_clients."
            )
        if n_clients is not None:
            runs = torch.arange(len(parts)).tensor_split(n_clients)
            parts = [[sample for user in run.tolist() for sample in parts[user]] for run in runs]
        super().__init__(parts)
        self.order, self.min_samples = order, min_samples
        self.covering = not self._left_out

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Hand out each user's samples; see the base class."""
        held = sum(map(len, self._parts)) + self._left_out
        if held != len(targets):
            raise SettingError(
                f"natural needs the user of each of {many(len(targets), 'training sample')}, got {many(held, 'user')}; "
                f"with train_per_class, data.user is needed."
            )
        return self._parts


class NaturalFile(Natural):
    """Each user is a client, by a column of a CSV file with a header and one row per training sample, in their order.

    Args:
        path: The file, UTF-8.  None: users are those of the data (``data.user``).
        column: Name of the column; its values are whole numbers or any text.  None: the only one.
        order: See `Natural`.
        min_samples: See `Natural`.
        n_clients: See `Natural`.

    Raises:
        DataError: If there is no such file or column, or a row without a user.
        SettingError: If the users are fractions, or too few; when samples are dealt, if there is not one for each.
    """

    def __init__(
        self,
        path: str | None = None,
        column: str | None = None,
        order: Order = "sorted",
        min_samples: PositiveInt = 1,
        n_clients: PositiveInt | None = None,
    ):
        self.path, self.column = None if path is None else Path(path), column
        if self.path is not None:
            super().__init__(_users(self.path, column), order, min_samples, n_clients)
            return
        self.order, self.min_samples, self.n_clients = order, min_samples, n_clients

    def with_users(self, users: Sequence[Any] | None) -> Partition:
        """Give each of the data's users a client, unless a file says who they are; see the base class.

        Raises:
            SettingError: If neither does.
        """
        if self.path is not None:
            return self
        if users is None:
            raise SettingError(_NO_USERS)
        return Natural(users, self.order, self.min_samples, self.n_clients)

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Hand out the samples of the file's users; see the base class."""
        if self.path is None:
            raise SettingError(_NO_USERS)
        return super().assign(targets, n_clients, n_classes, generator)


_NO_USERS = "natural needs users, got none; set partition.path, or data.user where the data have it."


def _users(path: Path, column: str | None) -> list[str] | list[int]:
    """Read the user of each row."""
    columns, rows = files.rows(path, "natural")
    name = columns[0] if column is None and len(columns) == 1 else column
    if name not in columns:
        raise DataError(
            f"{path} needs a column {column or 'of users'}, got {', '.join(columns) or 'none'}; set "
            f"partition.column to one of these."
        )
    users = [row[name] or "" for row in rows]
    if "" in users:
        raise DataError(f"{path}, row {users.index('') + 1}: a sample without a user; leave it out of the data, too.")
    if all(re.fullmatch(r"-?\d+", user) for user in users):
        numbers = [int(user) for user in users]
        return numbers if len({*numbers}) == len({*users}) else users  # 01 and 1 are two
    if all(re.fullmatch(r"-?\d+(\.\d*)?", user) for user in users):
        raise SettingError(f"natural needs users by name or whole number, got {users[0]} and others in {path}.")
    return users
