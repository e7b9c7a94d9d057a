"""The run that max-recall-drop compares with: plain averaging without attack."""

import json
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.errors import SettingError
from lightning_fl.run.assemble import check_together, make, make_data, make_module, make_trainer
from lightning_fl.run.config import settle
from lightning_fl.run.identity import identity
from lightning_fl.run.lock import held
from lightning_fl.run.saved import COMPLETED, finished
from lightning_fl.run.train import end_if_stopped, train
from lightning_fl.text import said


def reference_recall(config: DictConfig) -> list[float | None] | None:
    """Get the recalls of plain averaging without attack that ``reference`` asks for; None where not measured.

    Raises:
        SettingError: If ``reference`` names something that is not a completed run, or plain averaging does not fit
            the clients.
    """
    if config.reference is None:
        return None
    if config.reference != "run":
        return _recall(Path(config.reference))
    rule = make(config.get("aggregator"))
    if rule is not None and rule.sums:
        raise SettingError(
            f"reference=run trains plain averaging, which cannot replace {type(rule).__name__}: these clients upload "
            f"parts of a sum; train a reference by hand and give its folder (reference=FOLDER)."
        )
    plain = config.copy()
    OmegaConf.set_struct(plain, False)  # groups left unchosen have no key; allow adding them
    plain.update({"aggregator": {}, "adversary": {}, "logger": {}, "reference": None, "ckpt_path": "auto", "f": None})
    plain.callbacks, plain.twin = {}, None  # a reference goes to its end; a twin is measured against the same one
    plain.trainer.update({"callbacks": None, "profiler": None})
    plain.trainer.update({"devices": 1, "num_nodes": 1})  # whichever of several processes comes first trains it
    settle(plain)
    folder = Path(config.reference_dir) / identity(plain)
    plain.run_dir, plain.run_name = str(folder), "reference"
    if finished(folder) is None:
        check_together(make_module(config), make_data(config), make_trainer(config, folder, []))  # no training in vain
    with held(folder, wait=True):  # another process may be training it
        if finished(folder) is None:
            print("Reference: plain averaging without attack", flush=True)
            stop = GracefulStop()
            summary = train(plain, folder, describe=False, stop=stop)
            end_if_stopped(summary, stop)
        return _recall(folder)


def _recall(folder: Path) -> list[float | None]:
    path = folder / "summary.json" if folder.is_dir() else folder
    try:
        summary = json.loads(path.read_text("utf-8"))
        recall, status = summary["recall"] or [], summary["status"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(
            f"reference needs the folder of a finished run, got {folder} ({said(error, named=True)}); use "
            f"reference=run to train one."
        ) from error
    if status not in COMPLETED:
        raise SettingError(f"reference needs a completed run, got one that is {status}: {folder}.")
    if not recall:
        raise SettingError(f"reference needs a run with an evaluation, got one without: {folder}.")
    return list(recall)
