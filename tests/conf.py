"""The configurations as a user composes them."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

CONF = Path(__file__).resolve().parents[1] / "conf"


def names(group: str) -> list[str]:
    """Every file of a group, by stem."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@cache
def compose(*overrides: str) -> DictConfig:
    """Compose ``conf/train.yaml``; not to be written to."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("train", list(overrides))


def choice(override: str, group: str) -> str:
    """Which file of a group an override leads to."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return str(hydra.compose("train", [override], return_hydra_config=True).hydra.runtime.choices[group])


def make(group: str, name: str, **settings: Any) -> Any:
    """Instantiate one file of a group; settings replace those of the same name, nested ones too."""
    config = deepcopy(compose(f"{group}={name}")[group])
    node = config
    while node:
        node.update({key: value for key, value in settings.items() if key in node})
        node = node.get("rule", {})
    return instantiate(config, _convert_="all")
