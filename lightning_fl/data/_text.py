"""What the text data sets share: turning words into numbers."""

from abc import abstractmethod
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor

from lightning_fl.data._files import lines
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DataError, MissingError, install
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.samples import Samples
from lightning_fl.text import number

Labelled = tuple[list[str], list[int]]
"""Texts and their classes."""

_SPECIAL = ["[PAD]", "[UNK]"]  # numbers 0 and 1; in capitals, which no lower-case text has


class TextDataModule(FederatedDataModule):
    """Texts as rows of token numbers: 0 pads, 1 is any unknown token, so a text has as many tokens as non-zeros.

    A lower-case text is split into words and runs of punctuation.  A text without any token becomes one unknown token,
    so that no mean over tokens divides by zero.

    Args:
        vocabulary: Largest number of different tokens, 0 and 1 included; at least 3.  The words are the most
            frequent of all training texts or, with ``glove``, the first of that file (which is sorted by frequency).
        length: Tokens that a text is clipped or padded to, at least 1.
        glove: None or a text file of word vectors, ``word v1 v2 ...`` per line, of GloVe, word2vec or fastText, such as
            glove.6B.50d.txt.

    Raises:
        SettingError: If a number is out of range.
        MissingError: If the package tokenizers is not installed.

    Note:
        The BOBA authors tokenise with NLTK and give padding and unknown words the same number, 0, and so the vector
        zero.  Here both have the vector zero too, but a text shows its own length.
    """

    class_names: tuple[str, ...]
    """Names of the classes, in the order of their numbers."""

    def __init__(
        self,
        vocabulary: Annotated[int, Ge(3)] = 20000,
        length: PositiveInt = 70,
        glove: str | None = None,
        server_samples: NonNegativeInt | Sequence[NonNegativeInt] | None = 30,
        **settings: Any,
    ):
        super().__init__(server_samples=server_samples, **settings)
        need_tokenizers(type(self).__name__)
        self.vocabulary = vocabulary
        self.length = length
        self.glove = glove

    @abstractmethod
    def read(self) -> tuple[Labelled, Labelled]:
        """Read the training and test texts, lower-case, which `prepare_data` has put in place."""

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, length) token numbers, int64.

        Raises:
            DataError: If a file is missing or not what it should be; the message names file and line.
        """
        train, test = self.read()
        words = None if self.glove is None else read_vectors(Path(self.glove), self.vocabulary - len(_SPECIAL))[0]
        self.tokenizer = tokenizer = tokenizer_of(train[0], self.vocabulary, self.length, words)
        first, second = (
            Samples(encoded(tokenizer, texts), torch.tensor(labels), len(self.class_names))
            for texts, labels in (train, test)
        )
        return first, second


def need_tokenizers(who: str) -> None:
    """Check that the package tokenizers is installed.

    Raises:
        MissingError: If it is not.
    """
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise MissingError(f"{who} needs tokenizers, got none; {install('text')}.") from error


def tokenizer_of(
    texts: Sequence[str], vocabulary: int, length: int, words: list[str] | None = None, characters: bool = False
) -> Any:
    """Make a tokenizer of the most frequent words of some texts.

    Args:
        texts: The texts.
        vocabulary: Largest number of different tokens, with those of padding and of the unknown.
        length: Tokens that a text is clipped or padded to.
        words: The words that are known, in place of the most frequent ones.
        characters: Whether every character is a token, not every word.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    model = models.WordLevel(unk_token=_SPECIAL[1])
    if words is not None:
        model = models.WordLevel({word: z for z, word in enumerate(_SPECIAL + words)}, unk_token=_SPECIAL[1])
    tokenizer = Tokenizer(model)
    each = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.pre_tokenizer = each if characters else pre_tokenizers.Whitespace()
    tokenizer.encode_special_tokens = True  # "[PAD]" in a text is text
    if words is None:
        trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=_SPECIAL, show_progress=False)
        tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=0, pad_token=_SPECIAL[0])
    return tokenizer


def encoded(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Turn texts into (N, length) token numbers, int64."""
    found = []
    for start in range(0, len(texts), 10_000):  # an encoding is far larger than its numbers
        encodings = tokenizer.encode_batch_fast(texts[start : start + 10_000])
        found.append(torch.from_numpy(np.array([encoding.ids for encoding in encodings])).long())
    numbers = torch.cat(found)
    numbers[:, 0].clamp_(min=1)
    return numbers


def read_vectors(path: Path, limit: int) -> tuple[list[str], Tensor]:
    """Read the first word vectors of a text file.

    A word may hold spaces, as some of GloVe 840B do: a vector is the last numbers of its line, as many as the first
    line has or, in files of word2vec and fastText, as a line ``COUNT WIDTH`` before it says.

    Args:
        path: The file.
        limit: How many words to read at most.

    Returns:
        The words and their (words, width) float32 vectors.

    Raises:
        DataError: If the file is missing or a line is not a new word and as many numbers as the first line has.
    """
    rows = dict.fromkeys(_SPECIAL, 0)
    values = array("f")
    width = 0
    for count, line in enumerate(lines(path), 1):
        fields = line.rstrip("\r\n ").replace("\t", " ").split(" ")
        if count == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            width = int(fields[1])
            continue
        if len(rows) - len(_SPECIAL) == limit:
            break
        width = width or len(fields) - 1
        more = fields[1:-width] if width else []
        if not 0 < width < len(fields) or (more and None not in map(number, more)):
            raise DataError(
                f"{path}, line {count}: needs a word and {width or 'some'} numbers, got {len(fields) - 1} numbers."
            )
        word = " ".join(fields[:-width])
        try:
            values.extend(map(float, fields[-width:]))
        except ValueError as error:
            raise DataError(f"{path}, line {count}: {error}.") from error
        if word in rows:
            raise DataError(f"{path}, line {count}: {word!r} occurs twice.")
        rows[word] = count  # of its line
    if not width:
        raise DataError(f"{path} holds no word vectors.")
    vectors = torch.from_numpy(np.array(values)).view(-1, width)
    broken = (~vectors.isfinite().all(1)).nonzero().flatten().tolist()
    if broken:
        raise DataError(f"{path}, line {list(rows.values())[len(_SPECIAL) + broken[0]]}: the vector is not finite.")
    return list(rows)[len(_SPECIAL) :], vectors
