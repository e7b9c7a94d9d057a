"""Name many runs from few compositions: what each choice changes is composed once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from omegaconf import OmegaConf

from lightning_fl.run.check import checked
from lightning_fl.run.identity import Config, depended, identity, name_of

_Path = tuple[str, ...]
_Flat = dict[_Path, Any]
_REFERENCE = re.compile(r"\$\{(?:[\w.]+:)?([\w.]+)")


class Factors:
    """Runs that differ by one choice per factor, each choice being a list of overrides.

    A composition takes a tenth of a second; a thousand runs that combine fifty choices need fifty of them.

    Args:
        base: Overrides of every run.
        factors: The overrides by factor and choice.  A run in which what one choice sets depends on another one's,
            such as a rule with ``seed: ${seed}``, is composed by itself.

    Raises:
        SettingError: If train.py would refuse a choice.

    Example:
        >>> factors = {"rule": {"m": ["aggregator=median"]}, "seed": {"0": ["seed=0"], "1": ["seed=1"]}}
        >>> runs = Factors(["model=logistic"], factors)
        >>> runs.overrides({"rule": "m", "seed": "1"})
        ['model=logistic', 'aggregator=median', 'seed=1']
    """

    def __init__(self, base: Sequence[str], factors: Mapping[str, Mapping[str, Sequence[str]]]):
        self.base, self.factors = list(base), factors
        self._first = {factor: next(iter(choices)) for factor, choices in factors.items()}
        self.common, self._raw = self._composed({})
        """Settings of the first choices, and as they are written."""
        self._changes: dict[tuple[str, str], _Change] = {}

    def overrides(self, chosen: Mapping[str, str]) -> list[str]:
        """List a run's overrides, as for train.py."""
        return [*self.base, *(part for factor, choice in chosen.items() for part in self.factors[factor][choice])]

    def name(self, chosen: Mapping[str, str]) -> str:
        """Tell a run's `identity`."""
        settings = self.settings(chosen)
        return identity(checked(self.overrides(chosen))) if settings is None else name_of(settings)

    def settings(self, chosen: Mapping[str, str]) -> Config | None:
        """List what a run's result depends on; None if its choices depend on each other."""
        changes = [self._change(factor, choice) for factor, choice in chosen.items()]
        if any(one.meets(other) for one, other in permutations(changes, 2)):
            return None
        settings = dict(self.common)
        for change in changes:
            settings = {path: value for path, value in settings.items() if path not in change.gone} | change.put
        return _nested(settings)

    def _change(self, factor: str, choice: str) -> "_Change":
        """What a choice takes from and puts into the settings of the first choices."""
        if (factor, choice) not in self._changes:
            first = choice == self._first[factor]
            there, raw = (self.common, self._raw) if first else self._composed({factor: choice})
            put = {path: value for path, value in there.items() if self.common.get(path) != value}
            written = {path: str(text) for path, text in raw.items() if self._raw.get(path, path) != text}
            asked = {tuple(name.split(".")) for text in written.values() for name in _REFERENCE.findall(text)}
            if any("${." in text for text in written.values()):
                asked.add(())  # a place relative to its own: whatever another choice changes
            self._changes[factor, choice] = _Change(set(self.common) - set(there), put, set(written), asked)
        return self._changes[factor, choice]

    def _composed(self, other: dict[str, str]) -> tuple[_Flat, _Flat]:
        config = checked(self.overrides(self._first | other))
        return _leaves(depended(config)), _leaves(OmegaConf.to_container(config))


@dataclass(frozen=True)
class _Change:
    """What a choice does to the settings of the first choices.

    Args:
        gone: What it takes away.
        put: What it sets to other values.
        written: What it writes differently, if only as a reference with the same value.
        asked: What the settings that it brings refer to.
    """

    gone: set[_Path]
    put: _Flat
    written: set[_Path]
    asked: set[_Path]

    def meets(self, other: "_Change") -> bool:
        """Whether both change a setting, or this one's settings follow what the other one changes."""
        theirs = other.gone | other.put.keys() | other.written
        return not theirs.isdisjoint(self.gone | self.put.keys() | self.written) or any(
            path[: len(asked)] == asked for asked in self.asked for path in theirs
        )


def _leaves(node: Any, path: _Path = ()) -> _Flat:
    found: _Flat = {}
    for key, value in node.items():
        found |= _leaves(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


def _nested(leaves: _Flat) -> Config:
    found: Config = {}
    for path, value in leaves.items():
        node = found
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
    return found
