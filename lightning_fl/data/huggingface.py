"""Images, vectors or texts of a data set of Hugging Face, from its hub or from a folder.

Memory: a byte per pixel and channel, 4 bytes per number, 8 per token of a text.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightning_fl.data._items import read
from lightning_fl.data._table import Rows, Table, need
from lightning_fl.errors import DataError, SettingError, install
from lightning_fl.ranges import PositiveInt


class HuggingFace(Table):
    """A data set that the library ``datasets`` reads; see the base class for the other settings.

    Args:
        dataset: Its name on the hub, or a folder that ``save_to_disk`` has written.
        name: Its configuration on the hub.  None: the only one.
        train: Name of the training split.
        test: Name of the test split.  None: test, validation or valid, whichever is there, or else a share of the
            training samples.
        input: Column of the inputs: images, lists of numbers of one length, or texts.
        target: Column of the classes: names of classes, whole numbers, or words.
        user: Column of users, for ``partition=natural``.  None: there is none.
        side: Pixels of a side that images are resized to.  None: as they are, all of one shape.
        settings: See the base class.

    Raises:
        SettingError: When it is loaded: if ``datasets`` is not installed.
        DataError: When it is loaded: if it cannot be fetched or read, or lacks a split or a column.
    """

    def __init__(
        self,
        dataset: str,
        name: str | None = None,
        train: str = "train",
        test: str | None = None,
        input: str = "image",
        target: str = "label",
        user: str | None = None,
        side: PositiveInt | None = None,
        **settings: Any,
    ):
        super().__init__(**settings)
        self.dataset, self.name, self.splits = dataset, name, (train, test)
        self.input, self.target, self.user, self.side = input, target, user, side

    def prepare_data(self) -> None:
        """Fetch it unless it is a folder; see `rows`."""
        self._all()

    def rows(self) -> tuple[Rows, Rows | None]:
        """Read both splits; see the base class."""
        found, (train, test) = self._all(), self.splits
        test = test or next((name for name in ("test", "validation", "valid") if name in found), None)
        for name in [train, *([test] if test else [])]:
            if name not in found:
                raise DataError(f"{self.dataset} has no split {name}; it has {', '.join(found)}.")
        return self._read(found[train]), self._read(found[test]) if test else None

    def _all(self) -> Mapping[str, Any]:
        try:
            import datasets
        except ImportError as error:
            raise SettingError(f"data=huggingface needs the library datasets; {install('hf')}.") from error
        folder = Path(self.dataset).is_dir()
        if not folder and not re.fullmatch(r"\w[\w.-]*(/[\w.-]+)?", self.dataset):
            raise DataError(f"{self.dataset} is neither a folder nor a name on the hub, such as NAME or OWNER/NAME.")
        try:
            read_it = datasets.load_from_disk if folder else partial(datasets.load_dataset, name=self.name)
            found = read_it(self.dataset)
        except Exception as error:  # of the network, the hub, or a damaged folder
            why = (str(error).strip().splitlines() or [""])[0].rstrip(".")
            raise DataError(
                f"{self.dataset} cannot be read: {type(error).__name__}: {why}; give its name on the hub, or a folder "
                f"of save_to_disk."
            ) from error
        return found if isinstance(found, Mapping) else {self.splits[0]: found}

    def _read(self, split: Any) -> Rows:
        named = [self.input, self.target, *([self.user] if self.user else [])]
        need(split.column_names, named, self.dataset)
        first = split[0] if len(split) else {}
        hidden = {name: x for name, x in {self.target: 0, self.input: [0]}.items() if isinstance(first.get(name), str)}
        columns = _Columns(split.select_columns(named), self.input, self.side, hidden)
        items = read(columns, self.input, self.target, self.user)
        words = {name: list(split[name]) for name in hidden}
        inputs = items.inputs if items.inputs.dtype == torch.uint8 else items.inputs.double()
        targets = words.get(self.target, items.targets.tolist())
        return Rows(words.get(self.input, inputs), targets, items.users, items.classes)


class _Columns:
    """Items whose images are all grey or all in colours, as the first one is, and of one side."""

    def __init__(self, split: Any, place: str, side: int | None, hidden: Mapping[str, Any]):
        self.split, self.place, self.side = split, place, side
        self.hidden = hidden  # what stands for words
        self.features = split.features
        first: Any = split[0][place] if len(split) else None
        self.mode = ("L" if first.mode in ("1", "L") else "RGB") if hasattr(first, "getbands") else None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, i: int) -> dict[str, Any]:
        item: dict[str, Any] = {**self.split[i], **self.hidden}
        image = item[self.place]
        if self.mode is not None and not hasattr(image, "mode"):
            raise ValueError(f"no image, but {image}")
        if self.mode is not None and not image.mode.startswith(
            ("I", "F")
        ):  # more than 8 bits: refused where it is read
            image = image if image.mode == self.mode else image.convert(self.mode)
            item[self.place] = image if self.side is None else image.resize((self.side, self.side))
        return item
