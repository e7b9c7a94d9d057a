"""YAML that may be somebody else's: of a bounded size, and without keys that occur twice.

A few lines of aliases of aliases are gigabytes once they are written out, and readers take the last of two equal keys
without a word.
"""

import re
from typing import Any

import yaml

_CHARACTERS, _VALUES, _LEVELS = 100_000, 20_000, 30  # tables of papers have 12,000, 500 and 5


class LimitError(yaml.YAMLError):
    """It is larger than what anybody writes, or asks for more than it may."""


def load(text: str, loader: type[yaml.BaseLoader] | type[yaml.SafeLoader], environment: bool = True) -> Any:
    """Read YAML.

    Args:
        text: What a file holds.
        loader: What makes values of it.
        environment: Whether settings may ask for this machine's environment variables, which end up in runs' files.

    Raises:
        LimitError: If it is too large, its aliases written out, refers to itself, or asks for what it may not.
        yaml.YAMLError: If it is not YAML, or a key occurs twice in one place.
    """
    if len(text) > _CHARACTERS:
        raise LimitError(f"it has {len(text):,} characters, more than {_CHARACTERS:,}")
    if not environment and (asked := re.search(r"\$\{\s*oc\.(env|decode)", text)):
        raise LimitError(f"{asked[0]}...}} would write a variable of this machine into its runs; put in the value")
    reader = loader(text)
    try:
        node = reader.get_single_node()
        if node is None:
            return None
        _measure(node, {})
        return reader.construct_document(node)
    except RecursionError:
        raise LimitError(f"it has more than {_LEVELS} levels") from None
    finally:
        reader.dispose()


def _measure(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Count the values and levels of a node, each time that it occurs, although it is visited once."""
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise LimitError("it refers to itself")
        return found
    known[id(node)] = None
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif isinstance(node, yaml.MappingNode):
        keys = set[str]()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} occurs twice", problem_mark=key.start_mark)
                keys.add(key.value)
            inner += [key, value]
    sizes, levels = zip(*(_measure(one, known) for one in inner), strict=True) if inner else ((0,), (0,))
    size, level = 1 + sum(sizes), 1 + max(levels)
    if size > _VALUES:
        raise LimitError(f"it has more than {_VALUES:,} values")
    if level > _LEVELS:
        raise LimitError(f"it has more than {_LEVELS} levels")
    known[id(node)] = size, level
    return size, level
