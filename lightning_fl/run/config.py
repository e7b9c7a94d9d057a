"""Where configurations lie, what can be chosen there, and what a choice composes to."""

import re
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from lightning_fl.errors import SettingError

CONF = Path(__file__).resolve().parents[1] / "conf"
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())


def compose(arguments: Sequence[str]) -> DictConfig:
    """Compose what the command line would; unlike `check.checked` it checks nothing."""
    inside = GlobalHydra.instance().is_initialized()
    with nullcontext() if inside else hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return settle(hydra.compose("train", list(arguments)))


@cache
def default_settings() -> dict[str, Any]:
    """What a run without any choice has."""
    settings: Any = OmegaConf.to_container(compose(["run_dir=null", "run_name=null"]), resolve=True)
    return dict(settings)


def settle(config: DictConfig) -> DictConfig:
    """Say in the settings what follows from them: where nobody attacks, no client is Byzantine."""
    if not config.get("adversary"):
        config.federation.n_byzantine = 0
    return config


def spelled(arguments: Sequence[str]) -> list[str]:
    """Let +adversary=x mean adversary=x for every group, chosen by default or not."""
    return [re.sub(rf"^\++(?=({'|'.join(GROUPS)})=)", "", argument) for argument in arguments]


def choose(name: str, valid: Collection[str], what: str) -> str:
    """Check a name.

    Raises:
        SettingError: If it is not among the valid ones, which the message lists.
    """
    if name in valid:
        return name
    raise SettingError(no_such(what, name, valid))


def no_such(what: str, name: str, valid: Collection[str], like: str | None = None) -> str:
    """Say that there is no such name, which one may be meant (like ``like``), and which there are."""
    close = get_close_matches(like or name, valid, n=1)
    hint = f" did you mean {close[0]}?" if close else ""
    return f"there is no {what} {name};{hint} valid: {', '.join(valid)}."


def check_choices(arguments: Sequence[str]) -> None:
    """Check what the arguments choose of each group; Hydra would refuse it in many lines.

    Raises:
        SettingError: If there is no such choice, or several where a run has one.
    """
    several = {"-m", "--multirun"} & set(arguments)
    for argument in arguments:
        group, _, given = argument.partition("=")
        if group not in GROUPS or not re.fullmatch(r"[\w.,-]+", given):
            continue
        if "," in given and not several:
            raise SettingError(
                f"a run has one choice of {group}, got {given} (train.py -m trains them one after the other)."
            )
        for choice in given.split(","):
            choose(choice, choices(group), group)


def choices(group: str) -> list[str]:
    """List what can be chosen of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))
