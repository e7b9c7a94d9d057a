"""Your own table: a CSV file with a header, a column of classes, perhaps of users, and of numbers or texts.

Memory: 4 bytes per number, 8 per token.
"""

from math import isfinite
from pathlib import Path
from typing import Any

import torch

from lightning_fl import files
from lightning_fl.data._table import Rows, Table, label, need
from lightning_fl.errors import DataError, SettingError
from lightning_fl.text import number


class Csv(Table):
    """Rows of numbers, or texts; see the base class for the other settings.

    Args:
        path: The file, UTF-8, with a header.
        test_path: The file of the test samples, with the same columns.  None: a share of the rows.
        target: Column of the classes, whole numbers or words.
        user: Column of users, for ``partition=natural``.  None: there is none.
        input: Columns of the inputs.  None: all others, in their order.
        text: Column of texts, in place of numbers.  None: there is none.
        settings: See the base class.

    Raises:
        DataError: When it is loaded: if a file cannot be read, lacks a column, or has a cell that is not a number.
    """

    def __init__(
        self,
        path: str,
        test_path: str | None = None,
        target: str = "label",
        user: str | None = None,
        input: list[str] | None = None,
        text: str | None = None,
        **settings: Any,
    ):
        super().__init__(**settings)
        self.path, self.test_path = path, test_path
        if text is not None and input is not None:
            raise SettingError(f"csv reads numbers or texts, got input={list(input)} and text={text}; leave one out.")
        self.target, self.user, self.input, self.text = target, user, input, text

    def rows(self) -> tuple[Rows, Rows | None]:
        """Read the files; see the base class."""
        train = self._read(Path(self.path))
        return train, None if self.test_path is None else self._read(Path(self.test_path))

    def _read(self, path: Path) -> Rows:
        named = [self.target, *([self.user] if self.user else [])]
        columns, read = files.rows(path, "csv")
        chosen = list(self.input) if self.input else [name for name in columns if name not in named]
        chosen = chosen if self.text is None else [self.text]
        need(columns, [*named, *chosen], str(path))
        if not read or not chosen:
            raise DataError(f"{path} needs rows and a column of inputs, got {len(read)} rows of {', '.join(columns)}.")
        numbers = [
            [] if self.text else [_number(row[name], path, i, name) for name in chosen]
            for i, row in enumerate(read, start=1)
        ]
        for i, row in enumerate(read, start=1):
            if empty := [name for name in named if not row[name]]:
                raise DataError(f"{path}, row {i}: {empty[0]} is empty; fill it, or leave the row out.")
        users = [row[self.user] for row in read] if self.user else []
        texts = None if self.text is None else [row[self.text] or "" for row in read]
        return Rows(
            texts or torch.tensor(numbers, dtype=torch.float64), [label(row[self.target]) for row in read], users
        )


def _number(text: str | None, path: Path, row: int, name: str) -> float:
    found = number(text)
    if found is None or not isfinite(found):
        raise DataError(
            f"{path}, row {row}: {name} needs a number, got {text!r}; fill it, or choose data.input or data.text "
            f"(data.user is the column of clients)."
        )
    return found
