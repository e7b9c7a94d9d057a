"""The configurations as a user composes them."""

from copy import deepcopy
from functools import cache
from typing import Any

from omegaconf import DictConfig, open_dict

from lightning_fl.arguments import arguments
from lightning_fl.errors import SettingError
from lightning_fl.network.statistics import with_statistics
from lightning_fl.run.assemble import make as make_part
from lightning_fl.run.config import CONF, own_folder
from lightning_fl.run.config import compose as compose_any


def names(group: str) -> list[str]:
    """List what to test of a group: the project's files, or ours if it has no folder of its own."""
    own = own_folder()
    return sorted(path.stem for path in ((own or CONF) / group).glob("*.yaml"))


@cache
def compose(*overrides: str) -> DictConfig:
    """Compose ``conf/train.yaml``; the result is shared, so do not change it."""
    return compose_any(overrides)


def unlike(group: str, choice: str, kind: type) -> str:
    """Say which settings a file of a group and the arguments of its class do not share; nothing if they agree."""
    differ = sorted(set(arguments(kind)) ^ (set(compose(f"{group}={choice}")[group]) - {"_target_"}))
    said = f"conf/{group}/{choice}.yaml needs each argument of {kind.__name__} and no other, differ: {differ}"
    return said if differ else ""


def make(group: str, choice: str, **settings: Any) -> Any:
    """Instantiate one file of a group; settings replace those of the same name, nested ones too."""
    config = deepcopy(compose(f"{group}={choice}")[group])
    buffers = None
    if group == "model":
        with open_dict(config):  # what a run does with a model, no settings of one
            config.pop("start")
            buffers = config.pop("buffers")
    node = config
    while node:
        node.update({key: value for key, value in settings.items() if key in node})
        node = node.get("rule", node.get("client", {}))
    try:
        made = make_part(config)
        return made if buffers is None else with_statistics(made, buffers)
    except SettingError as error:
        raise SettingError(f"conf/{group}/{choice}.yaml cannot be made: {error}") from error
