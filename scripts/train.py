"""Train one federation and measure what survives.

python scripts/train.py +aggregator=boba                     BOBA against IPM on embedded MNIST images
python scripts/train.py +aggregator=boba adversary=mimic     another attack
python scripts/train.py experiment=boba_mnist                a setting of a paper
python scripts/train.py -m +aggregator=average,boba          several runs
python scripts/train.py --help                               every group and setting
"""

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import lightning_fl  # first: makes torchvision importable beside a CPU-only torch

# isort: split
import hydra
import pytorch_lightning as pl
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_fl import DataError, FederatedModule, SettingError, report, seeding
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.participants import Participants
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_bar import RoundBar
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.saved_run import changed, comparable

CONF = Path(__file__).resolve().parents[1] / "conf"
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())


def train(
    config: DictConfig, folder: Path, reference: list[float] | None = None, describe: bool = True
) -> dict[str, Any]:
    """Train one federation.

    Args:
        config: What ``conf/train.yaml`` composes.
        folder: Where the run's files go.
        reference: Recall of each class by plain averaging without attack, for max-recall-drop.
        describe: Whether to print who takes part and what came out.

    Returns:
        The summary, which ``folder/summary.json`` holds.
    """
    settings: Any = OmegaConf.to_container(config, resolve=True)
    aggregator, adversary = make(config.get("aggregator")), make(config.get("adversary"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeding.derive_seed(config.seed, "model"))
        model = make(config.model)
    module = FederatedModule(model, make(config.client), make(config.server), make(config.get("schedule")), reference)
    data = make_data(config)
    record = Record(folder)
    checkpoint = RoundCheckpoint(folder / "checkpoints" / "last.ckpt", config.checkpoint_every)
    if config.trainer.accelerator == "auto" and torch.backends.mps.is_available():
        config.trainer.accelerator = "cpu"  # MPS has no float64
    callbacks = [aggregator, adversary, record, GracefulStop(), checkpoint]
    callbacks.append(Participants() if describe else None)
    callbacks.append(RoundBar() if config.trainer.enable_progress_bar else None)
    trainer: pl.Trainer = make(
        config.trainer,
        callbacks=[callback for callback in callbacks if callback is not None],
        logger=make(config.get("logger")) or False,
        default_root_dir=str(folder),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(settings)))
    for logger in trainer.loggers:
        # A sweep's agent locks its parameters' names: aggregator stays "boba", and its settings would be lost.
        logger.log_hyperparams(settings | ({"settings": settings} if "WANDB_SWEEP_ID" in os.environ else {}))

    trainer.fit(module, datamodule=data, ckpt_path=config.ckpt_path)
    trainer.save_checkpoint(checkpoint.path)
    if not module.diverged:
        trainer.test(module, datamodule=data, verbose=False)
    unfinished = trainer.global_step < config.trainer.max_steps
    status = "diverged" if module.diverged else "interrupted" if unfinished else "completed"
    summary = report.summarise(module, record, status)
    report.write(module, record, summary, folder, default_settings())
    if describe:
        print(report.results(summary, folder), flush=True)
    for logger in trainer.loggers:
        logger.log_metrics(
            {f"final/{name}": summary[name] for name in ("accuracy", "mrd") if summary[name] is not None}
        )
        finish = getattr(getattr(logger, "experiment", None), "finish", None)
        if finish is not None:
            finish()
    return summary


def make(config: DictConfig | None, **more: Any) -> Any:
    """Instantiate a part of the configuration; None where nothing is chosen."""
    return instantiate(config, _convert_="all", **more) if config else None


def make_data(config: DictConfig) -> FederatedDataModule:
    """Instantiate data, partition and federation."""
    data: FederatedDataModule = make(config.data, partition=make(config.partition), federation=make(config.federation))
    return data


@cache
def default_settings() -> dict[str, Any]:
    """What a run without any choice has."""
    settings: Any = OmegaConf.to_container(compose(["run_dir=null", "run_name=null"]), resolve=True)
    return dict(settings)


def compose(arguments: Sequence[str]) -> DictConfig:
    """Compose what the command line would; unlike `runs.compose` nothing is checked."""
    inside = GlobalHydra.instance().is_initialized()
    with nullcontext() if inside else hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("train", list(arguments))


def identity(config: DictConfig) -> str:
    """Name a run by what its result depends on: 16 hexadecimal digits, a hash of the settings and the version.

    Folders, loggers, checkpoints and the machine do not count; nor does ``n_byzantine`` where nobody attacks, nor what
    is null or empty, so that names outlive settings yet to be added.
    """
    settings: Any = OmegaConf.to_container(config)
    elsewhere = {"data_dir": "", "run_dir": "", "run_name": ""}  # others refer to these
    for key in ("reference_dir", "ckpt_path", "checkpoint_every", "logger"):
        settings.pop(key, None)
    for key in ("accelerator", "devices", "enable_progress_bar", "log_every_n_steps", "enable_model_summary"):
        settings["trainer"].pop(key, None)
    if not settings.get("adversary"):
        settings["federation"]["n_byzantine"] = 0
    resolved = OmegaConf.to_container(OmegaConf.create(settings | elsewhere), resolve=True)
    text = json.dumps([lightning_fl.__version__, _without_empty(resolved)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_empty(settings: Any) -> Any:
    if not isinstance(settings, dict):
        return settings
    kept = {key: _without_empty(value) for key, value in settings.items()}
    return {key: value for key, value in kept.items() if value not in (None, {}, [], "")}


def reference_recall(config: DictConfig) -> list[float] | None:
    """Get the recalls of plain averaging without attack that ``reference`` asks for.

    Raises:
        SettingError: If ``reference`` names something that is not a completed run, or plain averaging does not fit
            the clients.
    """
    if config.reference is None:
        return None
    if config.reference != "run":
        return _recall(Path(config.reference))
    if str(OmegaConf.select(config, "aggregator._target_")).endswith(".ClippedSum"):
        raise SettingError(
            "reference=run trains plain averaging, which cannot replace clipped_sum: these clients upload parts of a "
            "sum; train a reference by hand and give its folder (reference=FOLDER)."
        )
    plain = config.copy()
    OmegaConf.set_struct(plain, False)  # what nobody chose has no key
    plain.federation.n_byzantine = 0
    plain.update({"aggregator": {}, "adversary": {}, "logger": {}, "reference": None, "ckpt_path": None, "f": None})
    folder = Path(config.reference_dir) / identity(plain)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be training it
        if not (folder / "summary.json").exists():
            print("Reference: plain averaging without attack", flush=True)
            draft = folder.with_name(f".{folder.name}")
            plain.run_dir, plain.run_name = str(draft), "reference"
            checkpoint = draft / "checkpoints" / "last.ckpt"
            plain.ckpt_path = str(checkpoint) if checkpoint.exists() else None
            summary = train(plain, draft, describe=False)
            if summary["status"] == "interrupted":
                raise KeyboardInterrupt
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
    return _recall(folder)


def _recall(folder: Path) -> list[float]:
    path = folder / "summary.json" if folder.is_dir() else folder
    try:
        summary = json.loads(path.read_text())
        recall, status = summary["recall"], summary["status"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(
            f"reference needs the folder of a finished run, got {folder} ({type(error).__name__}: {error}); "
            f"use reference=run to train one."
        ) from error
    if status != "completed":
        raise SettingError(f"reference needs a completed run, got one that is {status}: {folder}.")
    return list(recall)


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
            raise SettingError(_no_such("setting", str(key), sorted(map(str, known))))
    given: Any = OmegaConf.to_container(config, resolve=True)
    _check_kinds(given, _defaults(), "")
    for group, choice in chosen.items():
        if group in GROUPS and isinstance(choice, str) and isinstance(given.get(group), dict):
            _check_kinds(given[group], _defaults(group, choice), f"{group}.")
    for key in ("data", "partition", "model", "client", "server"):
        if not isinstance(config.get(key), DictConfig) or "_target_" not in config[key]:
            raise SettingError(f"a run needs {key}, got none; valid: {', '.join(_choices(key))}.")
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
    ours, theirs = comparable([given, before])
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
    config[group] = OmegaConf.load(CONF / group / f"{choice}.yaml")
    if "defaults" in config[group]:  # it takes settings over from other files
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


def choose(name: str, valid: Collection[str], what: str) -> str:
    """Check a name.

    Raises:
        SettingError: If it is not among the valid ones, which the message lists.
    """
    if name in valid:
        return name
    raise SettingError(_no_such(what, name, valid))


def _no_such(what: str, name: str, valid: Collection[str], like: str | None = None) -> str:
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
            choose(choice, _choices(group), group)


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def run(config: DictConfig) -> None:
    """Train what the command line asks for."""
    with explained():
        check(config, HydraConfig.get().runtime.choices)
        if not config.get("adversary"):
            config.federation.n_byzantine = 0
        summary = train(config, Path(config.run_dir), reference_recall(config))
        if summary["status"] == "interrupted":
            raise KeyboardInterrupt  # ends the other runs of -m, too


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the user into one message and exit code 2; others keep their traceback."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # nobody reads on: reproduce.py | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(f"Error: {message}", file=sys.stderr)
        sys.exit(2)


def explain(error: Exception, arguments: Sequence[str] | None = None) -> str | None:
    """Say in a few lines what the user did wrong with ``arguments``, by default the command line's; None if nothing."""
    cause: BaseException = error
    while isinstance(cause, HydraException | OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, SettingError | DataError):
        return str(cause)
    missing = re.search(r"Could not override '([^']+)'", str(error))
    if missing:
        return _no_setting(missing[1], sys.argv[1:] if arguments is None else arguments)
    if isinstance(error, InstantiationException) and isinstance(cause, TypeError):
        where = re.search(r"full_key: (\S+)", str(error))
        return f"{cause} (in {where[1]})" if where else str(cause)
    if isinstance(error, HydraException | OmegaConfBaseException):
        return str(error).split("\nConfig search path")[0].strip()
    return None


def _no_setting(key: str, arguments: Sequence[str]) -> str:
    """Say what could stand where ``key`` does not fit, with the groups that the arguments choose."""
    chosen = [argument for argument in arguments if re.match(rf"({'|'.join(GROUPS)})=[^,]+$", argument)]
    node: Any = compose(chosen)
    *path, _ = key.split(".")
    if path and path[0] in GROUPS and not node.get(path[0]):
        return (
            f"{key} needs a choice of {path[0]} that has settings, got none; choose one by {path[0]}=..., valid: "
            f"{', '.join(_choices(path[0]))}."
        )
    for part in path:
        inner = node.get(part)
        if not isinstance(inner, DictConfig):
            break
        node = inner
    valid = {*node, *(() if path else GROUPS)} - {"_target_", "_partial_"}
    return _no_such("setting", key, sorted(map(str, valid)), like=key.rsplit(".", 1)[-1])


def spelled(arguments: Sequence[str]) -> list[str]:
    """Let +adversary=x mean adversary=x for every group, chosen by default or not."""
    return [re.sub(rf"^\++(?=({'|'.join(GROUPS)})=)", "", argument) for argument in arguments]


def main() -> None:
    """Run the command line."""
    arguments = spelled(sys.argv[1:])  # Hydra takes flags only before the rest
    sys.argv[1:] = sorted(arguments, key=lambda argument: argument not in {"-m", "--multirun"})
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors come through, to be explained here
    with explained():
        check_choices(arguments)
        run()


if __name__ == "__main__":
    main()
