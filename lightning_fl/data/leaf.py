"""LEAF's data sets, FEMNIST, Shakespeare and others, as its scripts leave them: JSON files by users.

Sebastian Caldas, Sai Meher Karthik Duddu, Peter Wu, Tian Li, Jakub Konecny, H. Brendan McMahan, Virginia Smith, Ameet
Talwalkar. LEAF: A Benchmark for Federated Settings. 2018. arXiv:1812.01097.

Memory: 4 bytes per number, 8 per token; while a file is read, several times that.
"""

import json
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_fl.data._table import Label, Rows, Table
from lightning_fl.errors import DataError
from lightning_fl.ranges import NonNegativeInt, PositiveInt


class Leaf(Table):
    """Samples of users, from ``train/*.json`` and ``test/*.json``, for ``partition=natural``.

    Files are read in the order of their names, users in that of a file's ``users``.  Classes are numbers from 0 to the
    largest one in training or test, or, where labels are words or characters, these in their order.  All test samples
    are one test set.

    Args:
        path: Folder of the folders train and test.
        shape: Shape of a sample, such as [1, 28, 28] for FEMNIST's 784 numbers.  None: as it is.
        length: See `Table`.
        tokens: See `Table`.
        server_samples: See `FederatedDataModule`; 0, as classes may be without training samples.
        settings: See the base class, but for ``test_share``.

    Raises:
        DataError: When it is loaded: if there are no files, a user is in two of a folder, or a file's numbers do
            not fit what it holds.
    """

    def __init__(
        self,
        path: str,
        shape: Sequence[PositiveInt] | None = None,
        standardize: bool = True,
        vocabulary: int = 20000,
        length: PositiveInt = 80,
        tokens: Literal["words", "characters"] = "characters",
        server_samples: NonNegativeInt | Sequence[NonNegativeInt] | None = 0,
        **settings: Any,
    ):
        super().__init__(
            standardize=standardize,
            vocabulary=vocabulary,
            length=length,
            tokens=tokens,
            server_samples=server_samples,
            **settings,
        )
        self.path, self.shape = path, shape

    def rows(self) -> tuple[Rows, Rows | None]:
        """Read both folders; see the base class."""
        train, test = (self._read(Path(self.path) / name) for name in ("train", "test"))
        labels = {*train[1], *test[1]}
        if words := sorted(y for y in labels if isinstance(y, str)):
            numbers: dict[Any, int] = {word: z for z, word in enumerate(words)}
        else:
            numbers = {y: y for y in labels if isinstance(y, int) and y >= 0}
        if wrong := [y for y in labels if y not in numbers]:
            raise DataError(f"LEAF's labels are whole numbers from 0, or all are words, got {wrong[0]!r}.")
        first, second = (
            Rows(self._numbers(x), [numbers[label] for label in y], users, words or None, max(numbers.values()) + 1)
            for x, y, users in (train, test)
        )
        return first, second

    def _read(self, folder: Path) -> tuple[list[Any], list[Label], list[str]]:
        """List inputs, labels and users of the samples in a folder's files."""
        files = sorted(folder.glob("*.json"), key=lambda path: path.name)
        if not files:
            raise DataError(f"{folder} has no JSON files; give the folder in which LEAF's train and test are.")
        inputs, labels, of, seen = [], [], [], dict[str, Path]()
        for path in files:
            try:
                held = json.loads(path.read_text(encoding="utf-8"))
                users, counts, samples = held["users"], held["num_samples"], held["user_data"]
                each = [
                    (user, count, samples[user]["x"], samples[user]["y"])
                    for user, count in zip(users, counts, strict=False)
                ]
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise DataError(f"{path} is no file of LEAF's: {type(error).__name__}: {error}.") from error
            if len(users) != len(counts):
                raise DataError(f"{path} has {len(users)} users and {len(counts)} numbers of samples.")
            for user, count, x, y in each:
                if user in seen:
                    raise DataError(f"{path} has the user {user} again, who is in {seen[user]}.")
                if not (isinstance(x, list) and isinstance(y, list)):
                    raise DataError(f"{path}: user {user} needs lists as x and y.")
                if not len(x) == len(y) == count:
                    raise DataError(f"{path}: user {user} has {count} samples, {len(x)} x and {len(y)} y.")
                if wrong := [label for label in y if not isinstance(label, int | str)]:
                    raise DataError(f"{path}: user {user} needs whole numbers or words as y, got {wrong[0]!r}.")
                seen[user] = path
                inputs += x
                labels += y
                of += [user] * count
        if not inputs:
            raise DataError(f"{folder} has no samples.")
        return inputs, labels, of

    def _numbers(self, x: list[Any]) -> Tensor | list[str]:
        if all(isinstance(one, str) for one in x):
            return x
        try:
            inputs = torch.tensor(x, dtype=torch.float64)
        except (ValueError, TypeError) as error:
            raise DataError(f"LEAF's samples are texts, or numbers of one shape: {error}.") from error
        if self.shape is None:
            return inputs
        if inputs[0].numel() != prod(self.shape):
            raise DataError(f"data.shape={list(self.shape)} needs {prod(self.shape)} numbers, got {inputs[0].numel()}.")
        return inputs.reshape(-1, *self.shape)
