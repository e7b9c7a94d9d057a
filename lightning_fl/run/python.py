"""Runs in plain Python, without configuration or files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, overload

import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lightning_fl import files
from lightning_fl.adversary.base import Adversary
from lightning_fl.aggregator.base import Aggregator
from lightning_fl.arguments import arguments, is_open, takers
from lightning_fl.audit.kept import Kept
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_bar import RoundBar
from lightning_fl.callback.round_checkpoint import WholeFiles
from lightning_fl.checks import check_trainer_settings, in_float64
from lightning_fl.client.base import Client
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DataError, SettingError, check_finite, check_instance, check_whole
from lightning_fl.loss.base import Loss, unburdened
from lightning_fl.module import FederatedModule
from lightning_fl.network.statistics import Buffers
from lightning_fl.plot import Pictures
from lightning_fl.run import page
from lightning_fl.run import summary as report
from lightning_fl.run.assemble import check_accelerator, check_together, make_module, make_seeded, over_processes
from lightning_fl.run.config import no_such, own_folder
from lightning_fl.run.fit import fit, silence
from lightning_fl.run.given import config_of
from lightning_fl.run.identity import Config
from lightning_fl.run.lock import held
from lightning_fl.run.saved import SavedRun, last_checkpoint, saved_config
from lightning_fl.run.train import clear
from lightning_fl.text import said

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What came out of a run.

    Args:
        model: The final model, on the CPU.
        status: "completed", "stopped early" (by a callback), "interrupted" or "diverged"; ``summary["reason"]`` says
            why a run ended early.
        accuracy: Accuracy at the last evaluation, in [0, 1].  None: the run diverged.
        recall: Recall of each class, in [0, 1]; None for a class without test samples.  None: the run diverged.
        metrics: One record per round; if evaluated, with accuracy and recall.  ``pandas.DataFrame`` takes it.
        weights: One record per round with the rule's weight of each client, by number; empty for a rule that is not a
            weighting.
        summary: What ``summary.json`` of a run from the command line holds.
        title: Rule and attack in a few words.
        clients: One record per client: samples of each class, and BOBA's last estimate of the classes' shares.
        config: The settings, as ``config.yaml`` of a run from the command line has them; samples and functions are not
            in it.  `compare` tells runs apart by it: what has no setting can be named there.
    """

    model: nn.Module = field(repr=False)
    status: str
    accuracy: float | None
    recall: list[float | None] | None
    metrics: list[Row] = field(repr=False)
    weights: list[Row] = field(repr=False)
    summary: dict[str, Any] = field(repr=False)
    title: str
    clients: list[Row] = field(repr=False)
    config: Config = field(repr=False)

    @property
    def diverged(self) -> bool:
        """Whether the run ended early, without a result."""
        return self.status == "diverged"

    def plot(self) -> Pictures:
        """Draw recall, confusion matrix, robustness and weights, as ``report.html`` has them."""
        return Pictures(page.draw(self.saved(), self.title))

    def saved(self, folder: Path = Path()) -> SavedRun:
        """Give the run as it is read from a folder."""
        return SavedRun(folder, self.config, self.metrics, self.weights, self.summary, self.clients)

    def save(self, folder: str | Path) -> None:
        """Write what ``lightning-fl compare`` and ``plot`` read, with pictures and ``report.html``; no checkpoint.

        Args:
            folder: Where to.  A run that was saved there before is replaced.

        Raises:
            SettingError: If a run from the command line is there.
            DataError: If a file cannot be written.
        """
        folder = Path(folder).absolute()
        if last_checkpoint(folder).exists():
            raise SettingError(f"save needs a folder without a checkpoint, got {folder}; choose another.")
        with held(folder):
            clear(folder, None)
            files.write(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(self.config)))
            report.write_rows(folder / "metrics.csv", self.metrics)
            report.write_rows(folder / "weights.csv", self.weights)
            report.publish(self.saved(folder), title=self.title)


@overload
def train(
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedDataModule,
    rule: Aggregator | None = None,
    attack: Adversary | None = None,
    rounds: int = 100,
    lr: float | None = None,
    seed: int = 0,
    client: Client | None = None,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    evaluate_every: int = 10,
    reference_recall: Iterable[float | None] | None = None,
    progress: bool = False,
    updates_dir: str | Path | None = None,
    loss: Loss | None = None,
    twin: int | None = None,
    buffers: Buffers = "refuse",
    **trainer: Any,
) -> Run: ...


@overload
def train(
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedDataModule,
    rule: Aggregator | None = None,
    attack: Adversary | None = None,
    rounds: int = 100,
    lr: float | None = None,
    *,
    seed: Iterable[int],
    client: Client | None = None,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    evaluate_every: int = 10,
    reference_recall: Iterable[float | None] | None = None,
    progress: bool = False,
    updates_dir: str | Path | None = None,
    loss: Loss | None = None,
    twin: int | None = None,
    buffers: Buffers = "refuse",
    **trainer: Any,
) -> list[Run]: ...


def train(
    model: nn.Module | Callable[[], nn.Module],
    data: FederatedDataModule,
    rule: Aggregator | None = None,
    attack: Adversary | None = None,
    rounds: int = 100,
    lr: float | None = None,
    seed: int | Iterable[int] = 0,
    client: Client | None = None,
    optimizer: Callable[..., Optimizer] = SGD,
    schedule: Callable[[Optimizer], LRScheduler] | None = None,
    evaluate_every: int = 10,
    reference_recall: Iterable[float | None] | None = None,
    progress: bool = False,
    updates_dir: str | Path | None = None,
    loss: Loss | None = None,
    twin: int | None = None,
    buffers: Buffers = "refuse",
    **trainer: Any,
) -> Run | list[Run]:
    """Train one federation in memory.

    Ctrl-C (or SIGTERM) ends it after the current round, and what it has come to is returned, with the status
    "interrupted"; a second one ends it at once.

    The arguments are left unchanged: rule, attack, client and model are copied, so that a second call starts afresh.

    Args:
        model: A class or function without arguments makes the model from the seed.  A module is used as it is: its
            parameters are where training starts, and the seed does not govern how they were drawn.
        data: Who holds what.  Partition and server's samples follow ``seed`` unless the data have a
            ``partition_seed``; who is Byzantine and who takes part follow it unless the data were given a federation.
        rule: What the server does.  None: the plain average.
        attack: What the Byzantine clients send.  None: there are none, whatever the data's federation says.
        rounds: How many rounds, at least 1.
        lr: The server's rate, at least 0.  None: the optimizer's own, as of ``partial(SGD, lr=0.5)``, or else 0.1.
        seed: Seed of everything that is drawn; or several, for a run each, one after the other.
        client: What every client computes.  None: one gradient of all its samples.
        optimizer: The server's, made from the model's parameters and ``lr``.
        schedule: Makes the rate schedule from the optimizer; stepped once per round.  None: constant.
        evaluate_every: Rounds between evaluations; one more at the end.
        reference_recall: Recall of each class by plain averaging without attack, for max-recall-drop; None where a
            class was not measured.
        progress: Whether to show a bar.
        updates_dir: Folder, on a disk, for the clients' updates where they exceed the memory.  None: memory.
        loss: What clients and server minimise, such as ``fl.loss.Focal()``, one of torch's losses with
            ``reduction="none"``, or any function from outputs and targets to one loss per sample.  None: the model's
            own ``sample_losses``, or else cross-entropy.
        twin: A number from 1 makes the run a twin: every initial parameter is moved by one unit in its last place, up
            or down as seed and number draw it.  How far its result is from that of the run without is what rounding
            alone does.  None: not a twin.
        buffers: What becomes of the running statistics of batch normalisation: "refuse" the model, evaluate by the
            "batch", let the server "recompute" them on its samples, or make them a matter of the "rule"; see
            `FederatedModule`.
        trainer: Settings of Lightning's trainer, such as ``accelerator``; its ``callbacks`` come after rule and attack
            and keep what they remember; those of several seeds are copies.

    Returns:
        The result; of several seeds a list, which ends with the run that Ctrl-C has ended.

    Raises:
        SettingError: If the parts do not fit together.
        DataError: If the data cannot be read.
    """
    for name, value in [("rounds", rounds), ("evaluate_every", evaluate_every)]:
        check_whole(name, value, 1)
    if twin is not None:
        check_whole("twin", twin, 1)
    check_instance("data", data, FederatedDataModule, "fl.TensorData((x, y), (x_test, y_test))")
    data.check_made()
    if rule is not None:
        check_instance("rule", rule, Aggregator, "fl.aggregator.Krum(f=4)")
    if attack is not None:
        check_instance("attack", attack, Adversary, "fl.adversary.Ipm()")
        if not data.federation.n_byzantine:
            raise SettingError("an attack needs Byzantine clients, got n_byzantine=0 in the data; raise it there.")
    if client is not None:
        check_instance("client", client, Client, "fl.client.Gradient()")
    if not callable(optimizer):
        raise SettingError(f"optimizer must be a class such as torch.optim.SGD, got {optimizer!r}.")
    for name, does, ours in [
        ("max_steps", "counts rounds by", "rounds"),
        ("val_check_interval", "counts rounds by", "evaluate_every"),
        ("aggregator", "takes the aggregator as", "rule"),
        ("adversary", "takes the adversary as", "attack"),
    ]:
        if name in trainer:
            raise SettingError(f"train {does} {ours}, got {name}={trainer[name]}; give {ours} in its place.")
    known = (signature(train).parameters.keys() - {"trainer"}) | arguments(pl.Trainer).keys()
    if unknown := sorted(trainer.keys() - known):
        raise SettingError(no_such("setting of train", unknown[0], sorted(known)))
    check_trainer_settings(trainer, taken=("callbacks", "logger", "default_root_dir"))
    seed = seed.tolist() if hasattr(seed, "tolist") else seed
    seeds: list[Any] = [*seed] if isinstance(seed, Iterable) else [seed]
    if not seeds:
        raise SettingError("train needs a seed or several, got none; give seed=0.")
    if len(seeds) > 1 and trainer.get("logger"):
        raise SettingError(f"a logger records one run, got {len(seeds)} seeds; call train for each seed.")
    if len(seeds) > 1 and isinstance(rule, Kept):
        raise SettingError(
            f"Kept keeps one run, got {len(seeds)} seeds; call train for each, with a folder of its own."
        )
    further = trainer.pop("callbacks", None) or []
    further = [*further] if isinstance(further, Sequence) else [further]
    for callback in further:
        check_instance("callbacks", callback, pl.Callback, 'EarlyStopping("accuracy", mode="max")')
    reference_recall = [*reference_recall] if isinstance(reference_recall, Iterator) else reference_recall
    keeps = any(isinstance(callback, Checkpoint) for callback in further)
    if torch.backends.mps.is_available():
        trainer = {"accelerator": "cpu"} | trainer  # MPS has no float64
    rhythm = {"max_steps": rounds, "val_check_interval": min(evaluate_every, rounds)}
    quiet: dict[str, Any] = {
        "devices": 1,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": 1,
        "logger": False,
        "enable_checkpointing": keeps,
        "enable_model_summary": False,
        "enable_progress_bar": progress,
    }
    check_accelerator(trainer.get("accelerator"), "accelerator")
    server, runs = _at(lr, optimizer), []
    for own in seeds:
        made = make_seeded(model, own, twin, trainer.get("precision"))
        module = FederatedModule(
            made, deepcopy(client), server, schedule, reference_recall, updates_dir, deepcopy(loss), buffers
        )
        held_data = data.reseeded(own, attacked=attack is not None)
        parts = {"aggregator": rule, "adversary": attack, "server": server, "schedule": schedule, "loss": loss}
        config = config_of(module, held_data, own, twin, rhythm | trainer, **parts)
        config["model"] |= {} if buffers == "refuse" else {"buffers": buffers}
        record, stop = Record(None), GracefulStop()
        callbacks = [deepcopy(rule), deepcopy(attack), record, stop, RoundBar() if progress else None]
        settings = {**trainer, "callbacks": further}
        settings = deepcopy(settings) if len(seeds) > 1 else settings  # callbacks and strategies remember
        callbacks += settings["callbacks"]
        used = [callback for callback in callbacks if callback is not None]
        with silence():
            settings = rhythm | quiet | settings | {"callbacks": used}
            lightning = over_processes(partial(pl.Trainer, **settings), settings.get("strategy"))
            check_together(module, held_data, lightning)
        summary = fit(module, held_data, lightning, record, stop)
        b = held_data.federation.n_byzantine
        run = Run(
            _trained(module),
            summary["status"],
            summary["accuracy"],
            summary["recall"],
            record.metrics.rows,
            record.weights.rows,
            summary,
            f"{type(module.aggregator).__name__}, {f'{b} {type(attack).__name__}' if b else 'no attack'}",
            report.clients(module, record),
            config,
        )
        runs.append(run)
        if stop.received:
            break
    return runs if isinstance(seed, Iterable) else runs[0]


def _at(lr: object, optimizer: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    """Let an optimizer have a rate: the given one, its own, or 0.1."""
    own = optimizer.keywords.get("lr") if isinstance(optimizer, partial) else None
    if lr is None:
        with suppress(TypeError, ValueError):  # no signature
            _, parameters = next(takers(optimizer))
            if own is not None or not (is_open(parameters) or "lr" in [taken.name for taken in parameters]):
                return optimizer
        return partial(optimizer, lr=0.1)
    if not isinstance(lr, Real | Tensor) or isinstance(lr, bool) or (isinstance(lr, Tensor) and lr.numel() != 1):
        raise SettingError(f"lr must be a number, got {lr!r}.")
    rate = float(lr)  # a schedule would write into a tensor
    check_finite("lr", rate)
    if rate < 0:
        raise SettingError(f"lr must be at least 0, got {rate}.")
    if own is not None:
        raise SettingError(f"the server has one rate, got lr={rate:g} and an optimizer with lr={own:g}; leave one out.")
    return partial(optimizer, lr=rate)


def load_module(folder: str | Path) -> FederatedModule:
    """Load what a run from the command line has trained: the final model with its client, server and schedule.

    The folder may be somebody else's as far as you trust the classes that its ``config.yaml`` can name: any model,
    client, optimizer or schedule that Python can import here, also from ``conf``'s parent folder, with any settings,
    such as paths.  Their modules are imported; no other package's function is called, nothing in the folder itself is
    run.

    Args:
        folder: The run's folder, with ``config.yaml`` and ``checkpoints/last.ckpt``, or that checkpoint.

    Returns:
        The module, on the CPU, in evaluation mode, as ``trainer.test`` takes it; what clients remember is left out.

    Raises:
        DataError: If a file is missing or broken.
    """
    own_folder()  # the run's model may come from there
    path = Path(folder) if Path(folder).is_file() else last_checkpoint(Path(folder))
    config = OmegaConf.create(saved_config(path.absolute().parents[1] / "config.yaml"))
    config.model.pop("start", None)  # its weights are those of the checkpoint
    if not path.is_file():
        raise DataError(f"{path} is not there; give the folder of a run that has reached a checkpoint.")
    state = WholeFiles().load_checkpoint(path)["state_dict"]
    module = make_module(config)
    if in_float64(config.trainer.get("precision")):
        module.double()
    try:
        module.load_state_dict({name: value for name, value in state.items() if not name.startswith("client.")})
    except RuntimeError as error:
        raise DataError(f"{path} is not of this run's model: {said(error)}.") from error
    return module.eval()


def load_model(folder: str | Path) -> nn.Module:
    """Load the final model of a run from the command line, on the CPU, in evaluation mode; see `load_module`."""
    return _trained(load_module(folder))


def _trained(module: FederatedModule) -> nn.Module:
    """Take a run's model out of it, on the CPU, in evaluation mode, and without the run's loss."""
    model = module.model.cpu().eval()
    return model if module.loss is None else unburdened(model)
