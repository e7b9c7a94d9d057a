"""A cell of a study, and what it is known by without composing it."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from lightning_fl import yaml_file
from lightning_fl.run.config import CONF, own_folder
from lightning_fl.run.identity import RESULTS, REVISED, beside, said


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Args:
        labels: A tuple: what tells it from the study's other cells of the same seed.
        overrides: Its settings as for train.py, without seed and twin.
        seed: The run's.
        title: What a person calls it.
        twin: The number of a run's twin (`lightning_fl.study.twins`); None: the run itself.
    """

    labels: Any
    overrides: tuple[str, ...]
    seed: int
    title: str
    twin: int | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """All settings, as for train.py."""
        return (*self.overrides, *(() if self.twin is None else [f"twin={self.twin}"]), f"seed={self.seed}")


def f_told(multiple: float, byzantine: int | float) -> int:
    """The f that rules are told: a multiple of how many attack in a round, rounded, halves up.

    >>> f_told(1.5, 15), f_told(0.29, 50)
    (23, 15)
    """
    return int(Decimal(str(multiple)) * Decimal(str(byzantine)) + Decimal("0.5"))


def own_texts() -> dict[Path, str]:
    """Read your own configurations."""
    own = own_folder()
    return {path: path.read_text("utf-8", "replace") for path in sorted(own.rglob("*.yaml"))} if own else {}


def words_of(text: str) -> list[str]:
    """List the words that may name a configuration."""
    return re.findall(r"[\w.-]+", text)


def reached(words: Collection[str], texts: Mapping[Path, str]) -> dict[Path, str]:
    """Find the files that are named by these words, or by the files that these name."""
    found: dict[Path, str] = {}
    waiting = [words]
    while waiting:
        named = waiting.pop()
        for path in [path for path in texts if path.stem in named and path not in found]:
            found[path] = texts[path]
            waiting.append(words_of(texts[path]))
    return found


def keys() -> Callable[[Cell], str]:
    """Make the function that tells what a cell asks for: its overrides, and what files say that they choose.

    An edit of your own rule or configuration, or of a file that a setting names, gives its cells another key, an edit
    of ours all cells; what a folder holds, or a file that only code names, is not looked at.  Cells with
    different keys may still be one run: whoever composes them sees that by their `identity`.
    """
    own, texts = own_folder(), own_texts()

    @cache
    def chosen(words: frozenset[str]) -> list[Any]:
        found = reached(words, texts)
        return [[str(path.relative_to(own or path)), _content(found[path])] for path in sorted(found)]

    @cache
    def named(override: str) -> Any:
        """An override, with the code and the content of files that it names."""
        name, _, value = override.partition("=")
        return [name, said({name.rpartition(".")[2]: value})]

    def key(cell: Cell) -> str:
        words = frozenset(word for text in cell.overrides for word in words_of(text.partition("=")[2]))
        asked = [_ours(), [named(text) for text in cell.command if not beside(text)], chosen(words) if texts else []]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]

    return key


@cache
def _ours() -> str:
    """Digest of our own configurations, and of what `identity` says of our code."""
    contents = [path.read_text("utf-8") for path in sorted(CONF.rglob("*.yaml"))]
    return hashlib.sha256(json.dumps([RESULTS, sorted(REVISED.items()), contents]).encode()).hexdigest()


def _content(text: str) -> Any:
    try:
        return said(yaml_file.load(text, yaml.BaseLoader))
    except yaml.YAMLError:
        return text
