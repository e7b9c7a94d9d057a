"""What composition cannot check of a run's settings."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from hydra.errors import HydraException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fl.errors import SettingError
from lightning_fl.run.config import CONF, GROUPS, check_choices, choices, compose, composed, file, no_such, spelled
from lightning_fl.run.explain import explain
from lightning_fl.run.identity import comparable, essential
from lightning_fl.run.saved import changed


def checked(overrides: Sequence[str]) -> DictConfig:
    """Compose and check what ``train.py OVERRIDES`` would train.

    Raises:
        SettingError: If train.py would refuse them, or they say where a run lies or starts, which `pool.execute` does.
    """
    for override in overrides:
        if re.match(r"[+~]*(ckpt_path|run_dir|run_name|hydra\b)", override):
            raise SettingError(
                f"each of these runs has a folder of its own and goes on from its own checkpoint, got {override}; "
                f"leave it out, or train one run by train.py."
            )
    arguments = [*spelled(overrides), "run_dir=unused", "run_name=unused", "logger=[]"]
    check_choices(arguments)
    try:
        config, chosen = composed(arguments)
        check(config, chosen)
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingError(f"{explain(error, arguments)} ({' '.join(overrides)})") from error
    return config


def check(config: DictConfig, chosen: Mapping[str, Any]) -> None:
    """Check what composition cannot: keys that nobody reads, a checkpoint that is not there.

    Args:
        config: What ``conf/train.yaml`` composes.
        chosen: The file chosen of each group, as Hydra knows it.

    Raises:
        SettingError: If something does not fit.
    """
    known = {*OmegaConf.load(CONF / "train.yaml"), *GROUPS} - {"defaults", "hydra", "method", "experiment"}
    for key in config:
        if key not in known:
            raise SettingError(no_such("setting", str(key), sorted(map(str, known))))
    given: Any = OmegaConf.to_container(config, resolve=True)
    _check_kinds(given, _defaults(), "")
    for group, choice in chosen.items():
        if group in GROUPS and isinstance(choice, str) and isinstance(given.get(group), dict):
            _check_kinds(given[group], _defaults(group, choice), f"{group}.")
    for key in ("data", "partition", "model", "client", "server"):
        if not isinstance(config.get(key), DictConfig) or "_target_" not in config[key]:
            raise SettingError(f"a run needs {key}, got none; valid: {', '.join(choices(key))}.")
    if config.ckpt_path is not None:
        _check_resume(Path(config.ckpt_path), given)
    for key in ("checkpoint_every", "trainer.max_steps", "trainer.val_check_interval"):
        if OmegaConf.select(config, key) < 1:
            raise SettingError(f"{key} counts rounds and must be at least 1, got {OmegaConf.select(config, key)}.")


def _check_resume(path: Path, given: dict[str, Any]) -> None:
    """Check that a run goes on as what it was; a checkpoint outside a run's folder may go on as anything."""
    if not path.is_file():
        raise SettingError(f"ckpt_path needs a checkpoint file, got {path}, which is not there.")
    saved = path.parents[1] / "config.yaml" if path.parent.name == "checkpoints" else None
    if saved is None or not saved.is_file():
        return
    before: Any = OmegaConf.to_container(OmegaConf.load(saved))
    ours, theirs = comparable([essential(given), essential(before)])
    ours["trainer"] = theirs["trainer"] = {}
    differ = {name: (now, then) for name, then, now in changed(theirs, ours)}  # with those that only it had
    differ |= {name: (now, then) for name, now, then in changed(ours, theirs)}
    other = [f"{name}: {now}, there {then}" for name, (now, then) in differ.items()]
    if other:
        raise SettingError(
            f"ckpt_path goes on with a run's own settings (trainer.max_steps may grow), got others than {saved}: "
            f"{'; '.join(other)}. Give that run's; to go on with others, copy the checkpoint out of its folder."
        )


@cache
def _defaults(group: str = "", choice: str = "") -> Any:
    """What conf/train.yaml says, or in its place one choice of a group."""
    config: Any = OmegaConf.load(CONF / "train.yaml")
    if not group:
        return OmegaConf.to_container(config)
    config[group] = OmegaConf.load(file(group, choice))
    if "defaults" in config[group]:  # the file inherits settings: compose it
        config = compose([f"{group}={choice}"])
    return OmegaConf.to_container(config[group], resolve=True) or {}


def _check_kinds(given: dict[str, Any], default: dict[str, Any], path: str) -> None:
    """Check that numbers and switches are what they are in conf; parts check lists of numbers themselves."""
    for key, example in default.items():
        value = given.get(key)
        if isinstance(example, dict) and isinstance(value, dict):
            _check_kinds(value, example, f"{path}{key}.")
        if isinstance(example, list) and value is not None and not isinstance(value, list):
            raise SettingError(f"{path}{key} needs a list such as {example}, got {value!r}.")
        kind = type(example) if example is not None else _annotated(default.get("_target_"), key)
        if key not in given or kind not in _KINDS or value is example is None:
            continue
        values = value if isinstance(value, list) and path and kind is not bool else [value]
        allowed, name = _KINDS[kind]
        if not all(isinstance(v, allowed) and isinstance(v, bool) == (kind is bool) for v in values):
            raise SettingError(f"{path}{key} needs {name}{' or null' if example is None else ''}, got {value!r}.")


_KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: (int | float, "a number"),
}


def _annotated(target: str | None, key: str) -> Any:
    """The one type, beside None, that one of our classes wants of a setting; None if there are several."""
    if not str(target).startswith("lightning_fl."):
        return None
    hints = get_type_hints(get_object(str(target)).__init__)
    wanted = [kind for kind in get_args(hints.get(key)) if kind is not NoneType]
    return wanted[0] if len(wanted) == 1 else None
