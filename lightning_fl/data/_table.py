"""What tables of samples have in common: targets of any kind, a split, a user for each sample."""

import re
import sys
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge, Gt, Lt
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor

from lightning_fl.data._items import check_same_classes, held_out
from lightning_fl.data._text import encoded, need_tokenizers, tokenizer_of
from lightning_fl.data.base import FederatedDataModule, check_alike
from lightning_fl.data.torchvision import scaling
from lightning_fl.errors import DataError
from lightning_fl.ranges import PositiveInt
from lightning_fl.samples import Samples
from lightning_fl.updates.rows import broken_rows

Label = int | str


class Rows(NamedTuple):
    """Samples as a table has them.

    Args:
        inputs: (N, ...) floats, float64 where they have offsets, or bytes, which are pixels; or N texts.
        targets: Class of each, a whole number or a word.
        users: User of each; empty if nobody asked.
        classes: Names of the classes that are numbered from 0; None: not known.
        n_classes: Targets are numbers below it, and stay as they are.  None: those that occur are numbered.
    """

    inputs: Tensor | Sequence[str]
    targets: Sequence[Label]
    users: Sequence[Any]
    classes: Sequence[str] | None = None
    n_classes: int | None = None


class Table(FederatedDataModule):
    """Samples of a table; see the base class for the other settings.

    Targets that are words, or do not go from 0 without gaps, are numbered in their order, which a line says.

    Args:
        test_share: Share of the samples, drawn by ``partition_seed``, for evaluation, where there is no test split.
        standardize: Whether inputs, images by channel, are standardised by mean and deviation of the training samples.
        vocabulary: Largest number of different tokens in texts: padding, unknown, and the most frequent ones.
        length: Number of tokens that each text is clipped or padded to.
        tokens: What is a token of a text: lower-case words and runs of punctuation, or characters.
        settings: See the base class.
    """

    def __init__(
        self,
        test_share: Annotated[float, Gt(0), Lt(1)] = 0.2,
        standardize: bool = True,
        vocabulary: Annotated[int, Ge(3)] = 20000,
        length: PositiveInt = 70,
        tokens: Literal["words", "characters"] = "words",
        **settings: Any,
    ):
        super().__init__(**settings)
        self.test_share, self.standardize = test_share, standardize
        self.vocabulary, self.length, self.tokens = vocabulary, length, tokens

    @abstractmethod
    def rows(self) -> tuple[Rows, Rows | None]:
        """Read the training samples, and those of a test split if there is one."""

    def load(self) -> tuple[Samples, Samples]:
        """Read, split and number; see `rows`."""
        train, test = self.rows()
        if test is None:
            left, held = held_out(len(train.targets), self.test_share, self.partition_seed)
            train, test = _chosen(train, left), _chosen(train, held)
        self.users = list(train.users) or None
        known: list[Label] = sorted(set(train.targets), key=lambda value: (isinstance(value, str), value))
        if train.n_classes is not None:
            known = list(range(train.n_classes))
        if train.classes is not None:
            check_same_classes(train.classes, test.classes)
            if outside := [value for value in known if value not in range(len(train.classes))]:
                raise DataError(
                    f"targets are numbers from 0 to {len(train.classes) - 1}, got {outside[0]}; leave out samples "
                    f"without a class."
                )
        numbers = {value: z for z, value in enumerate(known)}
        strangers = [value for value in test.targets if value not in numbers]
        if strangers:
            raise DataError(
                f"the test samples have the target {strangers[0]}, which no training sample has; leave such samples "
                f"out, or choose a column of classes as data.target."
            )
        if len({type(value) for value in known}) > 1:
            raise DataError(f"targets are whole numbers or words, got {known[0]!r} and {known[-1]!r}.")
        if train.classes is not None:
            self.class_names = [train.classes[int(value)] for value in known]
        if known != list(range(len(known))):
            self.class_names = self.class_names or [str(value) for value in known]
            ends = ", ".join(map(str, known[:3])) + (f", ..., {known[-1]}" if len(known) > 3 else "")
            rank_zero_only(print)(f"The targets {ends} are the classes 0 to {len(known) - 1}.", file=sys.stderr)
        x, x_test = self._inputs(train.inputs, test.inputs)
        pixels = x.dtype == torch.uint8 and x.ndim == 4 and self.standardize
        more = scaling(x) if pixels else ()
        found = [
            Samples(inputs, torch.tensor([numbers[value] for value in targets]), len(known), *more)
            for inputs, targets in [(x, train.targets), (x_test, test.targets)]
        ]
        check_alike(*found)
        return found[0], found[1]

    def _inputs(self, train: Tensor | Sequence[str], test: Tensor | Sequence[str]) -> tuple[Tensor, Tensor]:
        """Give numbers for texts, and standardise numbers."""
        if isinstance(train, Tensor) != isinstance(test, Tensor):
            raise DataError("training and test samples must both be texts, or both numbers.")
        if not (isinstance(train, Tensor) and isinstance(test, Tensor)):
            need_tokenizers(f"data={self.spelled()} with texts")
            characters = self.tokens == "characters"
            texts = [[text or "" for text in x] for x in (train, test)]
            if not characters:
                texts = [[text.lower() for text in x] for x in texts]
            self.tokenizer = tokenizer = tokenizer_of(texts[0], self.vocabulary, self.length, characters=characters)
            return encoded(tokenizer, texts[0]), encoded(tokenizer, texts[1])
        if not train.is_floating_point():
            return train, test
        for split, x in [("training", train), ("test", test)]:
            broken = broken_rows(x.reshape(len(x), -1).float()).nonzero()
            if len(broken):
                raise DataError(
                    f"{split} sample {int(broken[0])} holds NaN, inf or a float32's overflow; leave it out."
                )
        if self.standardize:
            values = (0, 2, 3) if train.ndim == 4 else (0,)
            mean, deviation = train.mean(values, keepdim=True), train.std(values, correction=0, keepdim=True)
            deviation = torch.where(deviation > 1e-12 * mean.abs(), deviation, 1)  # of a constant: rounding
            train, test = (train - mean) / deviation, (test - mean) / deviation
        return train.float(), test.float()


def _chosen(rows: Rows, index: Tensor) -> Rows:
    places = index.tolist()
    users = [rows.users[i] for i in places] if rows.users else []
    inputs = rows.inputs[index] if isinstance(rows.inputs, Tensor) else [rows.inputs[i] for i in places]
    return Rows(inputs, [rows.targets[i] for i in places], users, rows.classes, rows.n_classes)


def label(text: str) -> Label:
    """Read a class: a whole number if it looks like one.

    >>> label("3"), label("3.0"), label("cat"), label("1e2")
    (3, 3, 'cat', '1e2')
    """
    whole = re.fullmatch(r"\s*([+-]?\d+)(\.0*)?\s*", text)
    return int(whole[1]) if whole else text


def need(columns: Sequence[str], wanted: Sequence[str], what: str) -> None:
    """Check that a table has columns.

    Raises:
        DataError: If one is missing, or the same is asked for twice.
    """
    for name in wanted:
        if name not in columns:
            raise DataError(f"{what} has no column {name}; it has {', '.join(map(str, columns))}.")
    for one, other in pairwise(sorted(wanted)):
        if one == other:
            raise DataError(f"{what} gives one thing by each column, got {one} twice; choose another.")
