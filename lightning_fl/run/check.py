"""Check what composition cannot check of a run's settings."""

import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fl.errors import SettingError, check_whole, install
from lightning_fl.run.config import CONF, GROUPS, check_choices, choices, compose, no_such, spelled
from lightning_fl.run.differences import changed
from lightning_fl.run.explain import explain
from lightning_fl.run.identity import comparable, essential
from lightning_fl.run.kinds import check_kind, check_kinds
from lightning_fl.run.saved import contents, last_checkpoint, saved_config, saved_contents, starting_point


def checked(overrides: Sequence[str]) -> DictConfig:
    """Compose and check what ``train.py OVERRIDES`` would train.

    Raises:
        SettingError: If train.py would refuse them, or they say where a run is kept or starts: `Runner.train` does.
    """
    for override in overrides:
        if re.match(r"[+~]*(ckpt_path|run_dir|run_name|hydra\b)", override):
            raise SettingError(
                f"each of these runs has its own folder and continues from its own checkpoint, got {override}; leave "
                f"it out, or train a single run with train.py."
            )
    arguments = ["logger=[]", *spelled(overrides), "run_dir=unused"]
    check_choices(arguments)
    try:
        config = compose(arguments)
        check(config)
        if several(config.trainer):
            raise SettingError(
                f"several runs at a time have one process each, got trainer.devices={config.trainer.devices} and "
                f"trainer.num_nodes={config.trainer.get('num_nodes', 1)}; train one run by train.py."
            )
    except (HydraException, OmegaConfBaseException) as error:
        raise SettingError(f"{explain(error, arguments)} ({' '.join(overrides)})") from error
    return config


@cache
def _known() -> set[str]:
    """Name the settings that a run may have."""
    return {*map(str, OmegaConf.load(CONF / "train.yaml")), *GROUPS} - {"defaults", "hydra", "method", "experiment"}


def check(config: DictConfig) -> None:
    """Check what composition cannot: unknown keys, types of values, a missing checkpoint, another run's folder.

    Args:
        config: What ``conf/train.yaml`` composes.

    Raises:
        SettingError: If something does not fit.
    """
    for key in config:
        if key not in _known():
            raise SettingError(no_such("setting", str(key), sorted(_known())))
    given: Any = OmegaConf.to_container(config, resolve=True)
    for key, kind in _KINDS.items():
        check_kind(key, given.get(key), kind)
    for key in [*GROUPS, "federation", "trainer"]:
        _check_part(key, given.get(key))
    _check_loggers(given.get("logger") or {})
    _check_callbacks(given)
    from lightning_fl.checks import check_trainer_settings  # --help does not wait for torch

    check_trainer_settings(given["trainer"], "trainer.")
    for key in ("checkpoint_every", "trainer.max_steps", "trainer.val_check_interval", "trainer.log_every_n_steps"):
        rounds: Any = OmegaConf.select(config, key)
        check_kind(key, rounds, int)
        if rounds < 1:
            raise SettingError(f"{key} counts rounds and must be at least 1, got {rounds}.")
    for key, least in {"twin": 1, "f": 0}.items():
        if given.get(key) is not None:
            check_whole(key, given[key], least)
    rate: Any = OmegaConf.select(config, "server.lr")
    if isinstance(rate, float | int) and rate < 0:
        raise SettingError(f"server.lr must be at least 0, got {rate}.")
    check_folder(Path(given["run_dir"]), given)


_KINDS: dict[str, Any] = {
    "f": int | None,
    "seed": int,
    "twin": int | None,
    "reference": str | None,
    "reference_dir": str,
    "ckpt_path": str | None,
    "data_dir": str,
    "updates_dir": str | None,
    "run_dir": str,
    "run_name": str | None,
    "run_group": str | None,
    "method_name": str | None,
    "checkpoint_every": int,
}
_PACKAGES = {"TensorBoardLogger": ["tensorboard", "tensorboardX"], "MLFlowLogger": ["mlflow"]}  # the first as an extra
_NEEDED = ("data", "partition", "model", "client", "server", "federation", "trainer")


def _check_part(key: str, given: Any) -> None:
    """Check that a group or node is a part with settings of the right types, or empty where that is allowed."""
    several = key in ("callbacks", "logger")  # by name; see `_check_loggers`
    if isinstance(given, dict) and ("_target_" in given or (given and key in GROUPS and not several)):
        check_kinds(given, key)
    elif several and isinstance(given, dict):
        return
    elif key not in GROUPS:
        raise SettingError(f"{key} needs its settings ({key}.NAME=VALUE changes one), got {given!r}.")
    elif given or key in _NEEDED:
        raise SettingError(f"a run needs a choice of {key}, got {given or 'none'}; valid: {', '.join(choices(key))}.")


def _check_loggers(given: dict[str, Any]) -> None:
    """Check every logger, and that the package it records with is installed."""
    for name, node in {"logger": given}.items() if "_target_" in given else given.items():
        if not node:
            continue
        if not isinstance(node, dict) or "_target_" not in node:
            raise SettingError(
                f"logger needs loggers by their names, got {name}={node!r}; choose by logger=[wandb,tensorboard], and "
                f"give a file of your own in conf/logger the first line # @package logger.NAME."
            )
        if node is not given:
            check_kinds(node, f"logger.{name}")
        package, *others = _PACKAGES.get(str(node["_target_"]).rpartition(".")[-1], [""])
        if package and not any(map(find_spec, [package, *others])):
            raise SettingError(f"logger={name} needs {package}, got none; {install(package)}.")


def _check_callbacks(given: dict[str, Any]) -> None:
    """Check every callback, and that one that tells loggers has one."""
    chosen = given.get("callbacks") or {}
    for name, node in {"callbacks": chosen}.items() if "_target_" in chosen else chosen.items():
        if not isinstance(node, dict) or "_target_" not in node:
            raise SettingError(
                f"callbacks stand by their names, got {name}={node!r}; choose by callbacks=[early_stopping], and give "
                f"a file of your own in conf/callbacks the first line # @package callbacks.NAME."
            )
        check_kinds(node, f"callbacks.{name}")
    if not given.get("logger") and "LearningRateMonitor" in f"{chosen} {given['trainer'].get('callbacks')}":
        raise SettingError(
            "LearningRateMonitor needs a logger, got none; choose one by logger=..., or leave it out: metrics.csv has "
            "the learning rate of each round."
        )


def check_folder(folder: Path, given: dict[str, Any]) -> None:
    """Check that a run with these settings may train into a folder: it is the run's own, or has none in it.

    Raises:
        SettingError: If it may not, or a checkpoint is missing.
        DataError: If what the folder says of its run is damaged.
    """
    start = starting_point(given["ckpt_path"], folder)
    if start is not None:
        _check_resume(start, given)
    if start is None or start.resolve() != last_checkpoint(folder).resolve():
        _check_unused(folder)


def several(trainer: Any) -> bool:
    """Whether a trainer's settings ask for several processes."""
    devices, nodes = trainer.get("devices"), trainer.get("num_nodes") or 1
    listed = list(devices) if isinstance(devices, list | ListConfig) else str(devices).strip(",").split(",")
    more = len(listed) > 1 or (isinstance(devices, int | str) and re.fullmatch(r"-1|0*[2-9]|0*[1-9]\d+", listed[0]))
    return bool(more) or nodes != 1


def _check_resume(path: Path, given: dict[str, Any]) -> None:
    """Check that a run continues with its own settings; a checkpoint outside a run's folder may continue with any."""
    if not path.is_file():
        raise SettingError(f"ckpt_path needs a checkpoint file, got {path}, which is not there.")
    saved = path.parents[1] / "config.yaml" if path.parent.name == "checkpoints" else None
    if saved is None or not saved.is_file():
        return
    before = saved_config(saved)
    ours, theirs = comparable([essential(given), essential(before)])
    for settings in (ours, theirs):
        settings["trainer"] = {key: value for key, value in settings["trainer"].items() if key != "max_steps"}
    differ = {name: (now, then) for name, then, now in changed(theirs, ours)}  # and what only it had
    differ |= {name: (now, then) for name, now, then in changed(ours, theirs)}
    other = [f"{name}: {now}, there {then}" for name, (now, then) in differ.items()]
    if other:
        raise SettingError(
            f"ckpt_path continues with a run's own settings (trainer.max_steps may grow), got others than {saved}: "
            f"{'; '.join(other)}. Give that run's; to continue with others, copy the checkpoint out of its folder."
        )
    now, then = contents(given), saved_contents(saved.parent)
    edited = [name.removesuffix("._code_") for name in then if now.get(name) != then[name]]
    if edited:
        raise SettingError(
            f"ckpt_path continues with the code and files that a run began with, got others for {', '.join(edited)} "
            f"than {saved.parent} began with; undo the change, or copy the checkpoint out of its folder to continue "
            f"with it."
        )


def _check_unused(folder: Path) -> None:
    """Check that a new run does not replace another one in its folder."""
    last = last_checkpoint(folder)
    further = "continue that one with ckpt_path=auto, or " if last.exists() else ""
    for kept in (folder / "summary.json", last):
        if kept.exists():
            raise SettingError(
                f"a run needs a folder of its own, got {folder} with the {kept.name} of another; {further}choose "
                f"another folder (hydra.run.dir=FOLDER; of -m, hydra.sweep.dir=FOLDER)."
            )
