"""Name many runs from few compositions: what each choice changes is composed once."""

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_fl.run.check import checked
from lightning_fl.run.identity import Config, depended, name_of

_Flat = dict[tuple[str, ...], Any]


class Factors:
    """Runs that differ by one choice per factor, each choice being a list of overrides.

    A composition takes a tenth of a second; a thousand runs that combine fifty choices need fifty of them.

    Args:
        base: Overrides of every run.
        factors: The overrides by factor and choice; what a choice changes must not depend on another
            factor's.

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
        self._common = self._composed({})
        self._changes: dict[tuple[str, str], tuple[set[tuple[str, ...]], _Flat]] = {}

    def overrides(self, chosen: Mapping[str, str]) -> list[str]:
        """List a run's overrides, as for train.py."""
        return [*self.base, *(part for factor, choice in chosen.items() for part in self.factors[factor][choice])]

    def name(self, chosen: Mapping[str, str]) -> str:
        """Tell a run's `identity`."""
        settings = dict(self._common)
        for factor, choice in chosen.items():
            gone, changed = self._change(factor, choice)
            settings = {path: value for path, value in settings.items() if path not in gone} | changed
        return name_of(_nested(settings))

    def _change(self, factor: str, choice: str) -> tuple[set[tuple[str, ...]], _Flat]:
        """What a choice takes from and puts into the settings of the first choices."""
        if (factor, choice) not in self._changes:
            there = self._common if choice == self._first[factor] else self._composed({factor: choice})
            changed = {path: value for path, value in there.items() if self._common.get(path) != value}
            self._changes[factor, choice] = set(self._common) - set(there), changed
        return self._changes[factor, choice]

    def _composed(self, other: dict[str, str]) -> _Flat:
        return _leaves(depended(checked(self.overrides(self._first | other))))


def _leaves(node: Config, path: tuple[str, ...] = ()) -> _Flat:
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
