"""Name many runs from few compositions: what each choice changes is composed once."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from omegaconf import OmegaConf

from lightning_fl.errors import SettingError
from lightning_fl.run.check import checked
from lightning_fl.run.config import CONF, own_folder
from lightning_fl.run.identity import Config, counted, depended, identity, name_of

Choice = tuple[str, ...]
"""Overrides, such as those that make a rule, an attack or a degree of label skew."""

_Path = tuple[str, ...]
_Flat = dict[_Path, Any]
_REFERENCE = re.compile(r"\$\{(?:[\w.]+:)?([\w.]+)")


class Factors:
    """Runs that combine choices.

    A composition takes a tenth of a second; a thousand runs that combine fifty choices need fifty of them.  Choices of
    a run are composed together where they are about one setting, or what one sets follows the other, as a rule with
    ``seed: ${seed}`` does.  Experiments and other files that set many parts count as a part of the base.

    Args:
        base: Overrides of every run.
        runs: The choices of each run, to tell where composing the choices is less work than composing the runs.  None:
            everywhere.

    Example:
        >>> runs = Factors(["model=logistic"])
        >>> runs.overrides([("aggregator=median",), ("partition=iid", "f=3")])
        ['model=logistic', 'aggregator=median', 'partition=iid', 'f=3']
    """

    def __init__(self, base: Sequence[str], runs: Iterable[Sequence[Choice]] | None = None):
        self.base = tuple(base)
        self._broad: dict[str, bool] = {}
        self._parts: dict[Choice, tuple[Choice, Choice]] = {}
        self._bases: dict[Choice, _Base | None] = {}  # None: of few runs
        if runs is not None:
            shared: dict[Choice, set[tuple[Choice, ...]]] = {}
            for common, choices in map(self._split, runs):
                shared.setdefault(common, set()).add(tuple(choices))
            for common, found in shared.items():
                if len(found) <= 1 + len({choice for choices in found for choice in choices}):
                    self._bases[common] = None

    def overrides(self, choices: Sequence[Choice]) -> list[str]:
        """List a run's overrides, as for train.py."""
        return [*self.base, *(text for choice in choices for text in choice)]

    def names(self, choices: Sequence[Choice], seeds: Sequence[int]) -> list[str]:
        """Tell a run's `identity` at each seed.

        Raises:
            SettingError: If train.py would refuse it.
        """
        found = [self.settings([*choices, (f"seed={seed}",)]) for seed in seeds]
        names = [name_of(settings) for settings in found if settings is not None]
        if len(names) < len(seeds):
            config, names = checked(self.overrides(choices)), []
            for seed in seeds:
                config.seed = seed
                names.append(identity(config))
        return names

    def settings(self, choices: Sequence[Choice]) -> Config | None:
        """List what a run's result depends on; None if the run must be composed by itself."""
        common, choices = self._split(choices)
        if common not in self._bases:
            self._bases[common] = _Base(common)
        base = self._bases[common]
        return None if base is None else base.settings(choices)

    def _split(self, choices: Sequence[Choice]) -> tuple[Choice, list[Choice]]:
        """Move overrides that set many parts to the base, and join choices that name the same settings."""
        for choice in {*choices} - self._parts.keys():
            broad = tuple(text for text in choice if self._is_broad(text))
            self._parts[choice] = broad, tuple(text for text in choice if text not in broad)
        parts = [self._parts[choice] for choice in choices]
        common = (*self.base, *(text for broad, _ in parts for text in broad))
        return common, _joined([rest for _, rest in parts if rest], _name_the_same)

    def _is_broad(self, override: str) -> bool:
        """Whether a file of the override's group, such as an experiment, sets what lies outside the group."""
        group = _path(override)[0]
        if group not in self._broad:
            folders = [CONF, *filter(None, [own_folder()])]
            texts = (path.read_text("utf-8") for folder in folders for path in (folder / group).glob("*.yaml"))
            pattern = r"^# *@package|^ *- *(override +)?/[^@]*$"
            self._broad[group] = any(re.search(pattern, text, re.MULTILINE) for text in texts)
        return self._broad[group]


class _Base:
    """What runs have in common, and what each choice changes in it."""

    def __init__(self, overrides: Choice):
        self._overrides, self._before = overrides, _composed(overrides)
        self._changes: dict[Choice, _Change | None] = {}
        self._meeting: dict[tuple[Choice, Choice], bool] = {}

    def settings(self, choices: Sequence[Choice]) -> Config | None:
        """Make the changes of all choices, those that depend on each other in one; None if they are refused."""
        if self._before is None:
            return None
        settings = dict(self._before[0])
        for change in map(self._change, _joined(choices, self._meet)):
            if change is None:
                return None
            settings = {path: value for path, value in settings.items() if path not in change.gone} | change.put
        return counted(_nested(settings))

    def _change(self, choice: Choice) -> "_Change | None":
        if choice not in self._changes:
            after = _composed((*self._overrides, *choice))
            self._changes[choice] = self._before and after and _Change.between(self._before, after, choice)
        return self._changes[choice]

    def _meet(self, one: Choice, other: Choice) -> bool:
        """Whether two choices depend on each other, or may: one may be refused without the other."""
        if (one, other) not in self._meeting:
            first, second = self._change(one), self._change(other)
            self._meeting[one, other] = first is None or second is None or first.meets(second)
        return self._meeting[one, other]


@dataclass(frozen=True)
class _Change:
    """What a choice does to settings.

    Args:
        gone: What it takes away.
        put: What it sets to other values.
        touched: These, what its overrides name, and what it writes differently, if only as a reference with the same
            value.
        asked: What the settings that it brings refer to.
    """

    gone: set[_Path]
    put: _Flat
    touched: Collection[_Path]
    asked: Collection[_Path]

    @classmethod
    def between(cls, before: tuple[_Flat, _Flat], after: tuple[_Flat, _Flat], choice: Choice) -> "_Change":
        """Compare settings, and how they are written, before and after a choice."""
        put = {path: z for path, z in after[0].items() if repr(before[0].get(path)) != repr(z)}  # 1 is not 1.0
        written = {path: str(text) for path, text in after[1].items() if before[1].get(path, path) != text}
        asked = {tuple(name.split(".")) for text in written.values() for name in _REFERENCE.findall(text)}
        if any("${." in text for text in written.values()):
            asked.add(())  # a place relative to its own: whatever another choice changes
        gone = set(before[0]) - set(after[0])
        return cls(gone, put, {*gone, *put, *written, *map(_path, choice)}, asked)

    def meets(self, other: "_Change") -> bool:
        """Whether both touch a setting, or one's settings follow what the other one touches."""
        return (
            _overlap(self.touched, other.touched)
            or _overlap(self.asked, other.touched)
            or _overlap(self.touched, other.asked)
        )


def _composed(overrides: Choice) -> tuple[_Flat, _Flat] | None:
    """Compose settings: what a result depends on, and all as they are written; None if they are refused."""
    try:
        config = checked(overrides)
    except SettingError:  # there may be no reason to where other choices are made, too
        return None
    return _flat(depended(config)), _flat(OmegaConf.to_container(config))


def _path(override: str) -> _Path:
    return tuple(re.split("[=@]", override.lstrip("+~-"))[0].split("."))


def _joined(choices: Sequence[Choice], meet: Callable[[Choice, Choice], bool]) -> list[Choice]:
    """Join choices that meet, in their order."""
    found = list(choices)
    while pair := next((z for z in combinations(range(len(found)), 2) if meet(found[z[0]], found[z[1]])), None):
        one, other = pair
        found[other] = found[one] + found[other]
        del found[one]
    return found


@cache
def _name_the_same(one: Choice, other: Choice) -> bool:
    return _overlap([*map(_path, one)], [*map(_path, other)])


def _overlap(some: Collection[_Path], others: Collection[_Path]) -> bool:
    """Whether a path is, contains or lies in one of the others."""
    return any(path[: len(other)] == other[: len(path)] for path in some for other in others)


def _flat(node: Any, path: _Path = ()) -> _Flat:
    found: _Flat = {}
    for key, value in node.items():
        found |= _flat(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


def _nested(leaves: _Flat) -> Config:
    found: Config = {}
    for path, value in leaves.items():
        node = found
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return found
