"""How settings are spelled in a few words, and in which of them configurations differ."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lightning_fl.run.identity import PLACES, Config

_FIRST = ["aggregator", "adversary", "client", "partition", "data", "federation", "model"]
_NOTHING = {"aggregator": "average", "adversary": "no attack", "loss": "cross-entropy", "schedule": "constant rate"}


def changed(config: Config, default: Config) -> list[tuple[str, str, str]]:
    """List setting, value and default wherever a configuration differs from the default one.

    What only the default has is left out: it may be newer than the run.
    """
    return list(_changed(config, default, ""))


def flat(config: Config, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting by its full name, as the command line spells it."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", text_of(value)


def named(node: Any, group: str = "") -> str:
    """Name what a part of a configuration makes, as in ``conf``: trimmed_mean, bucketing(krum)."""
    if not isinstance(node, dict) or "_target_" not in node:
        return _NOTHING.get(group, "none")
    for inner in ("rule", "client", "lr_lambda"):
        if isinstance(node.get(inner), dict):
            return named(node[inner]) if inner == "lr_lambda" else f"{_snake(node)}({named(node[inner])})"
    return _snake(node)


def _snake(node: Config) -> str:
    module, _, name = str(node["_target_"]).rpartition(".")
    stem = module.rpartition(".")[-1]
    if stem.replace("_", "") == name.lower():
        return stem
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Part(NamedTuple):
    """A setting: where it stands, its name, and its value in a few words; what is made from settings has no name."""

    path: str
    name: str
    value: str

    @property
    def text(self) -> str:
        """The setting as a label has it."""
        return f"{self.name}={self.value}" if self.name else self.value


def settings(config: Config, path: str = "") -> dict[str, Part]:
    """List every setting by its path, and with those of a class that class."""
    found: dict[str, Part] = {}
    for key, value in config.items():
        place = f"{path}{key}"
        if isinstance(value, dict):
            found |= {place: Part(place, "", named(value))} if "_target_" in value else {}
            found |= settings(value, f"{place}.")
        else:  # seeds are told apart by what they are of; null and empty mean the same
            found[place] = Part(place, place if key == "seed" else key, text_of(None if value in ("", []) else value))
    return found


def differing(configs: Sequence[Config]) -> list[list[Part]]:
    """For each configuration, name the settings in which it differs from the others.

    Settings of different classes are not compared.  One that a configuration lacks is null there.
    """
    rows = list(map(settings, configs))
    classes = {path for row in rows for path, part in row.items() if not part.name}
    found: list[list[Part]] = [[] for _ in rows]
    for path in ordered(path for row in rows for path in row):
        without = Part(path, "", named(None, path) if path in classes else "null")
        above = [other for other in classes if path.startswith(f"{other}.")]
        alike: dict[tuple[str, ...], dict[int, Part]] = {}
        for i, row in enumerate(rows):
            part = row.get(path, without)
            part = without if part.name and path in classes else part
            if path in row or path != "federation.n_byzantine":  # without an attack there is no number of attackers
                alike.setdefault(tuple(row[other].value if other in row else "" for other in above), {})[i] = part
        for parts in alike.values():
            if len({part.value for part in parts.values()}) > 1:
                for i, part in parts.items():
                    found[i] += [part] if path in rows[i] or path in classes else []
    return found


def texts(parts: Iterable[Part], others: Iterable[str] = ()) -> list[str]:
    """Write what differs, each setting once, by its last name where no other one of them has the same.

    Args:
        parts: What `differing` gives for one configuration.
        others: Names of further settings that are written beside them.
    """
    kept: list[Part] = []
    for part in parts:
        if not any(same(part, other) for other in kept):
            kept.append(part)
    names = Counter(path.rpartition(".")[-1] for path in {*others, *(part.path for part in kept)})

    return [f"{part.path}={part.value}" if names[part.name] > 1 else part.text for part in kept]


def same(one: Part, other: Part) -> bool:
    """Whether one says what the other says: it is the same setting, or a run's own setting that a part of it takes."""
    run_wide = "." not in one.path or "." not in other.path
    return one.text == other.text and (one.path == other.path or run_wide)


def ordered(settings: Iterable[str]) -> list[str]:
    """List each setting once, by its group, the most interesting one first.

    >>> ordered(["seed", "model", "aggregator.f", "seed"])
    ['aggregator.f', 'model', 'seed']
    """
    place = {group: i for i, group in enumerate(_FIRST)}
    return sorted(dict.fromkeys(settings), key=lambda name: place.get(name.split(".")[0], len(place)))


def _changed(config: Config, default: Config, path: str) -> Iterator[tuple[str, str, str]]:
    for key in ordered([*(_NOTHING if not path else []), *config]):
        name, ours, theirs = f"{path}{key}", config.get(key), default.get(key)
        if name in PLACES or _made(ours, name) == _made(theirs, name):
            continue
        if isinstance(ours, dict) and isinstance(theirs, dict) and ours.get("_target_") == theirs.get("_target_"):
            yield from _changed(ours, theirs, f"{name}.")
        else:
            yield name, _made(ours, name), _made(theirs, name)


def _made(node: Any, group: str) -> str:
    if not isinstance(node, dict) and not (group in _NOTHING and not node):
        return text_of(node)
    if not node:
        return named(node, group)
    settings = ", ".join(
        f"{key.removeprefix('rule.').removeprefix('client.')}={value}" for key, value in flat(node) if key[-1] != "_"
    )
    return f"{named(node, group)}: {settings}" if settings else named(node, group)


def text_of(value: Any) -> str:
    """Spell a setting's value as the command line does."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
