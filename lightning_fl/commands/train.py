"""Train one federation and measure what survives.

python scripts/train.py +aggregator=boba                     BOBA against IPM on embedded MNIST images
python scripts/train.py +aggregator=boba adversary=mimic     another attack
python scripts/train.py experiment=boba_mnist                a setting of a paper
python scripts/train.py -m +aggregator=average,boba          several runs
python scripts/train.py --help                               every group and setting
python scripts/train.py aggregator=boba --help               a choice's settings, explained
"""

import logging
import os
import re
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from lightning_fl.commands import explained_by
from lightning_fl.errors import DataError, SettingError
from lightning_fl.run.config import (
    CONF,
    GROUPS,
    check_choices,
    file_of,
    own_folder,
    settle,
    short_name,
    spelled,
    take_own,
)
from lightning_fl.run.explain import explain, explained
from lightning_fl.text import many, shown

_trained: list[Path] = []  # folders of the runs of this process
_sweeps: list[tuple[Path, float]] = []  # folders of -m, and when it started: launchers may train in other processes
_made: list[Path] = []  # folders that were not there before, the innermost first
_refused: list[str] = []  # runs of -m that could not be, and why


class Sweeps(Callback):
    """Note where runs go, and which folders are about to be made for them."""

    def on_run_start(self, config: DictConfig, **more: Any) -> None:
        """Note the folders that Hydra will make."""
        _made.extend(_missing(Path(config.hydra.run.dir)))

    def on_multirun_start(self, config: DictConfig, **more: Any) -> None:
        """Note the folder of ``-m`` and the time."""
        _sweeps.append((Path(config.hydra.sweep.dir), time.time()))
        _made.extend(_missing(Path(config.hydra.sweep.dir)))


def _missing(folder: Path) -> list[Path]:
    """List a folder and its parents as far as they are not there, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _leave_nothing() -> None:
    """Remove the folders that Hydra has made for a run that never began, as far as they are empty."""
    of_sweep = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    for folder in [*([Path(HydraConfig.get().runtime.output_dir)] if of_sweep else []), *_made]:
        with suppress(OSError):
            if [path.name for path in folder.iterdir()] == ["multirun.yaml"]:  # of -m
                (folder / "multirun.yaml").unlink()
            folder.rmdir()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def run(config: DictConfig) -> None:
    """Train what the command line asks for."""
    with explained():
        try:
            logging.getLogger("torch").setLevel(logging.WARNING)  # Ctrl-C while it is imported is none of its business
            # Not earlier: a wrong name is reported before torch is there.
            from lightning_fl.run.check import several
            from lightning_fl.run.command import carry_out

            given, several_runs = HydraConfig.get().overrides, HydraConfig.get().mode == RunMode.MULTIRUN
            if config.ckpt_path == "auto":
                _need_folder([*given.hydra, *given.task], "hydra.sweep.dir" if several_runs else "hydra.run.dir")
            settled = settle(config)
            settled.run_name = settled.run_name or short_name(given.task)
            if several_runs and settled.run_group is None:
                settled.run_group = Path(HydraConfig.get().sweep.dir).name
            if several_runs and several(config.trainer):
                raise SettingError(
                    f"-m trains one run after the other in one process, got trainer.devices={config.trainer.devices}; "
                    f"train each by a command of its own."
                )
            _trained.append(Path(str(settled.run_dir)))
            carry_out(settled, others=several_runs)
        except BaseException as error:
            _leave_nothing()
            message = explain(error) if _sweeps and isinstance(error, Exception) else None
            if message is None:  # of -m in other processes, Hydra reports the first error
                raise
            job = HydraConfig.get()
            _refused.append(f"#{job.job.num} {' '.join(job.overrides.task)}: {message}")
            print(f"Error: {message}", file=sys.stderr)  # the other runs of -m go on


def _need_folder(overrides: Sequence[str], setting: str) -> None:
    """Check that the same command finds the same folder again.

    Args:
        overrides: What the command sets.
        setting: The one that names the folder; run_dir does, too.

    Raises:
        SettingError: If the folder is named by the time of day.
    """
    if not any(override.lstrip("+").partition("=")[0] in (setting, "run_dir") for override in overrides):
        raise SettingError(
            f"ckpt_path=auto goes on in the folder of the run, got a new folder for each call; set {setting}=FOLDER."
        )


def _compare() -> None:
    """Print one table of several runs: those of this process, and those that launchers have trained in others."""
    runs = [folder for folder in _trained if (folder / "config.yaml").exists()]
    if len(runs) < 2 and not _sweeps:
        return
    from lightning_fl.study.compare import Comparison, find

    for folder, started in _sweeps:
        with suppress(DataError):  # none has begun
            runs += [run for run in find([folder]) if (run / "config.yaml").stat().st_mtime >= started]
    if len(unique := list(dict.fromkeys(run.resolve() for run in runs))) > 1:
        print(f"\n{Comparison(unique).text()}", flush=True)


def main() -> None:
    """Run the command line."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors come through, to be explained here
    with explained():
        arguments = take_own(spelled(sys.argv[1:]))
        check_choices(arguments)
        if {"-h", "--help"} & {*arguments}:
            chosen = [argument.split("=", 1) for argument in arguments if argument.partition("=")[0] in GROUPS]
            files = [file_of(group, name) for group, given in chosen for name in re.findall(r"[\w.-]+", given)]
            if files:
                print("\n".join(f"{shown(path)}\n\n{explained_by(path.read_text('utf-8'))}" for path in files))
                return
            print(explained_by(__doc__))
        own = own_folder()
        flags = [argument for argument in arguments if argument in {"-m", "--multirun"}]
        rest = [argument for argument in arguments if argument not in flags]
        sys.argv[1:] = [*flags, *(["--config-dir", str(own)] if own else []), *rest]  # Hydra wants flags first
        for noted in (_trained, _sweeps, _made, _refused):
            noted.clear()
        # Python 3.14 asks for an option's help when it is added; that of Hydra's --shell-completion is not a string.
        ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]
        try:
            run()
        finally:
            _compare()
        if _refused:
            raise SettingError("\n  ".join([f"{many(len(_refused), 'run')} could not be trained:", *_refused]))
