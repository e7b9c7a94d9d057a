"""Name many runs from few compositions: what each choice changes is composed once."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from omegaconf import OmegaConf

from lightning_fl.errors import SettingError
from lightning_fl.run.check import check, checked
from lightning_fl.run.config import CONF, own_folder
from lightning_fl.run.identity import Config, depended, identity, name_of

Choice = tuple[str, ...]
"""Overrides, such as those that make a rule, an attack or a degree of label skew."""

_Path = tuple[str, ...]
_Flat = dict[_Path, Any]
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?(\w[\w.]*)(?:,[^${}]*)?\}")
_NESTED = re.compile(r"\$\{[^}]*\$\{")
# A first line or a default by which a file sets what lies outside its group.
_OUTSIDE = re.compile(r"^\s*#\s*@package|^\s*-\s*(optional\s+|override\s+)*/[^@:\n]*(:|$|@_global_)", re.MULTILINE)


class Factors:
    """Runs that combine choices.

    A composition takes a tenth of a second; a thousand runs that combine fifty choices need fifty of them.  Choices of
    a run are composed together where they are about one setting, or what one sets follows the other, as a rule with
    ``seed: ${seed}`` does.  Experiments and other files that set many parts count as a part of the base.

    Args:
        base: Overrides of every run.
        runs: The choices of each run.  Choices are composed only where there are fewer of them than runs; None: always.

    Example:
        >>> runs = Factors(["model=logistic"])
        >>> runs.overrides([("aggregator=median",), ("partition=iid", "f=3")])
        ['model=logistic', 'aggregator=median', 'partition=iid', 'f=3']
    """

    def __init__(self, base: Sequence[str], runs: Iterable[Sequence[Choice]] | None = None):
        self.base = tuple(base)
        self._broad: dict[str, bool] = {}
        self._parts: dict[Choice, tuple[Choice, Choice]] = {}
        self._bases: dict[Choice, _Base | None] = {}  # None: of too few runs
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
            config = checked([*self.overrides(choices), f"seed={seeds[0]}"])
            names = [identity(config)]
            for seed in seeds[1:]:
                config.seed = seed
                check(config)
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
            files = [path for folder in folders for path in (folder / group).glob("*.yaml")]
            self._broad[group] = any(_OUTSIDE.search(path.read_text("utf-8", "replace")) for path in files)
        return self._broad[group]


class _Base:
    """What runs have in common, and what each choice changes in it."""

    def __init__(self, overrides: Choice):
        settings = _Settings.composed(overrides)
        nested = settings is not None and any(map(_NESTED.search, settings.references.values()))
        self._overrides, self._settings = overrides, None if nested else settings
        self._changes: dict[Choice, _Change | None] = {}
        self._meeting: dict[tuple[Choice, Choice], bool] = {}

    def settings(self, choices: Sequence[Choice]) -> Config | None:
        """Make the changes of all choices, those that depend on each other in one; None if that cannot be done."""
        if self._settings is None:
            return None
        settings = dict(self._settings.counted)
        for change in map(self._change, _joined(choices, self._meet)):
            if change is None:
                return None
            settings = {path: value for path, value in settings.items() if path not in change.gone} | change.put
        return _nested(settings)

    def _change(self, choice: Choice) -> "_Change | None":
        if choice not in self._changes:
            before, after = self._settings, _Settings.composed((*self._overrides, *choice))
            self._changes[choice] = _Change.between(before, after, choice) if before and after else None
        return self._changes[choice]

    def _meet(self, one: Choice, other: Choice) -> bool:
        """Whether two choices depend on each other; they may where one of them alone is refused."""
        if (one, other) not in self._meeting:
            first, second = self._change(one), self._change(other)
            self._meeting[one, other] = first is None or second is None or first.meets(second)
        return self._meeting[one, other]


@dataclass(frozen=True)
class _Settings:
    """A composition.

    Args:
        counted: What a result depends on.
        resolved: All settings.
        references: Those that refer to others, as they are written.
    """

    counted: _Flat
    resolved: _Flat
    references: dict[_Path, str]

    @classmethod
    def composed(cls, overrides: Choice) -> "_Settings | None":
        """Compose overrides; None if they are refused, though more of them may not be."""
        try:
            config = checked(overrides)
        except SettingError:
            return None
        written = _flat(OmegaConf.to_container(config))
        references = {path: str(value) for path, value in written.items() if "${" in str(value)}
        return cls(_flat(depended(config)), _flat(OmegaConf.to_container(config, resolve=True)), references)

    @property
    def attacked(self) -> bool:
        return any(path[0] == "adversary" for path in self.counted)


@dataclass(frozen=True)
class _Change:
    """What a choice does to settings.

    Args:
        gone: What it takes away.
        put: What it sets to other values.
        touched: Every setting that it names, changes or replaces by a reference.
        asked: What the references that it brings are to.
    """

    gone: set[_Path]
    put: _Flat
    touched: Collection[_Path]
    asked: Collection[_Path]

    @classmethod
    def between(cls, before: _Settings, after: _Settings, choice: Choice) -> "_Change":
        """Compare settings before and after a choice."""
        put = _differing(after.counted, before.counted)
        gone = before.counted.keys() - after.counted.keys()
        brought = _differing(after.references, before.references)
        changed = {**_differing(after.resolved, before.resolved), **_differing(before.resolved, after.resolved)}
        touched = {*map(_path, choice), *put, *gone, *brought, *changed}
        touched |= {path[:-1] for path in touched if path[-1] == "_target_"}  # another class takes others
        if before.attacked != after.attacked:  # without an attack nobody is Byzantine, whatever is said
            touched.add(("federation", "n_byzantine"))
        asked = {tuple(name.split(".")) for text in brought.values() for name in _REFERENCE.findall(text)}
        if any("${" in _REFERENCE.sub("", text) for text in brought.values()):
            asked.add(())  # whatever another choice changes
        return cls(gone, put, touched, asked)

    def meets(self, other: "_Change") -> bool:
        """Whether both touch a setting, or one's settings follow what the other one touches."""
        return (
            _overlap(self.touched, other.touched)
            or _overlap(self.asked, other.touched)
            or _overlap(self.touched, other.asked)
        )


def _differing(some: Mapping[_Path, Any], others: Mapping[_Path, Any]) -> dict[_Path, Any]:
    """List what others lack or have otherwise; 1 is not 1.0."""
    return {path: value for path, value in some.items() if path not in others or repr(others[path]) != repr(value)}


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
