"""YAML in which no key stands twice: its readers take the last one without a word."""

from typing import Any

import yaml


def load(text: str, loader: type[yaml.BaseLoader] | type[yaml.SafeLoader]) -> Any:
    """Read YAML.

    Raises:
        yaml.YAMLError: If it is not YAML, or a key occurs twice in one place.
    """
    _check(yaml.compose(text, loader))
    return yaml.load(text, loader)


def _check(node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key, inner in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(problem=f"{key.value} occurs twice", problem_mark=key.start_mark)
            _check(inner)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            _check(inner)
