"""One federated round as one Lightning training step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy, deepcopy
from functools import partial
from itertools import islice, pairwise
from math import isfinite, isnan, nan
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.checks import (
    check_model,
    check_monitors,
    check_optimizer,
    check_privacy,
    check_rounds,
    check_server_data,
    check_statistics,
    check_trainer,
    parameter_type,
    refuse_hidden_state,
    step,
)
from lightning_fl.client.base import Client, ClientResult, check_result
from lightning_fl.client.dealt import Dealt, collect, homes
from lightning_fl.client.gradient import Gradient
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DivergedError, SettingError, check_choice, check_instance, concerning
from lightning_fl.evaluation import ClassCounts, Counted, client_scores, count, scores
from lightning_fl.loss.base import Loss, minimizing
from lightning_fl.metric.detection import detection
from lightning_fl.metric.robustness import measured_kappa
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.network.images import keep_freed, outputs
from lightning_fl.network.layers import evaluating
from lightning_fl.network.parameters import trainable, unflatten
from lightning_fl.network.statistics import Buffers, apart, mixes, recompute, recomputes, with_statistics
from lightning_fl.round import Round
from lightning_fl.samples import RoundBatch, Samples
from lightning_fl.updates.deviation import quick_deviation
from lightning_fl.updates.exchange import Block
from lightning_fl.updates.layout import layout_of
from lightning_fl.updates.rows import broken_rows, check_shape
from lightning_fl.updates.storage import Storage
from lightning_fl.updates.updates import Updates


class FederatedModule(pl.LightningModule):
    """The round: clients compute, adversary forges, aggregator combines, server steps.

    ``trainer.global_step`` is the number of finished rounds and ``max_steps`` how many to run.  The `Aggregator` and
    the `Adversary` are found among the trainer's callbacks; none given: plain average, no attack.

    Args:
        model: The global model; maps a batch of inputs to (batch, c) logits.
        client: The clients' work.  None: one gradient of all samples that a client holds, `Gradient`.
        optimizer: Makes the server's optimizer from the model's parameters; it subtracts the aggregated update.  None:
            SGD at a rate of 0.1.
        schedule: Makes the rate schedule from the optimizer; stepped once per round.  None: constant.
        reference_recall: (c,) recalls of plain averaging without attack, to report max-recall-drop; None where a class
            was not measured.
        updates_dir: Folder, on a disk, for the file that holds the round's updates where they exceed the memory.  None:
            memory.
        loss: What clients and server minimise: maps outputs and targets to one loss per sample, as a module of
            `lightning_fl.loss`, or one of torch's with ``reduction="none"``.  None: the model's own ``sample_losses``,
            or else cross-entropy.
        buffers: What becomes of the running statistics of batch normalisation, which no client uploads; what an
            attacker can do through each is said in `lightning_fl.network.statistics`.  "refuse": such a model is not
            trained.  "batch": there are none, evaluation normalises by what is evaluated together.  "recompute": the
            server computes them on its own samples before each evaluation and checkpoint.  "rule": they are coordinates
            of the rows.  The model's layers are replaced in place, those that are frozen by ``eval()`` excepted.

    Raises:
        SettingError: If the model keeps batch statistics and ``buffers`` is "refuse", or has alpha dropout.
    """

    def __init__(
        self,
        model: nn.Module,
        client: Client | None = None,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        schedule: Callable[[Optimizer], LRScheduler] | None = None,
        reference_recall: Iterable[float | None] | None = None,
        updates_dir: str | Path | None = None,
        loss: Loss | None = None,
        buffers: Buffers = "refuse",
    ):
        super().__init__()
        check_choice("model.buffers", buffers, get_args(Buffers))
        check_instance("model", model, nn.Module, "nn.Linear(784, 10)")
        refuse_hidden_state(model, statistics=buffers != "refuse")
        model = with_statistics(model, buffers)
        self.automatic_optimization = False
        self.model = model if loss is None else minimizing(model, loss)
        self.loss = loss
        if isinstance(client, Client) and "_modules" not in vars(client):
            raise SettingError(f"{type(client).__name__} needs super().__init__() first in its __init__, got none.")
        self.client = Gradient() if client is None else client
        self.make_optimizer = partial(SGD, lr=0.1) if optimizer is None else optimizer
        self.make_schedule = schedule
        self.reference_recall: list[float | None] | None = None
        if reference_recall is not None:
            self.reference_recall = [None if r is None or isnan(r) else float(r) for r in reference_recall]
        self.storage = Storage(updates_dir)
        self.aggregator: Aggregator = Average()
        self.adversary: Adversary | None = None
        self.evaluation: dict[str, float] = {}
        self.confusion: list[list[int]] | None = None
        """Test samples of the last evaluation by true class (rows) and predicted class."""
        self.diverged: str | None = None
        """Why the run stopped early, if it diverged."""
        self._previous_update: Tensor | None = None
        self._homes: dict[int, int] = {}  # by client, the process that has its memory

    def setup(self, stage: str) -> None:
        """Find rule and attack, and check that everything fits together before any training.

        Raises:
            SettingError: If it does not.
        """
        if stage == "predict":  # on any loader
            return
        data = self.data
        check_trainer(self.trainer)
        self._prepare_metrics(data.n_classes)
        if stage != "fit":
            self.adversary = _only(self.trainer, Adversary)
            if self.adversary is not None:
                with concerning("adversary"):
                    self.adversary.check_data(data)
            if self.trainer.world_size > 1:  # Lightning is about to give every process what the first one remembers
                collect(self.client, self._homes, self.trainer.strategy.root_device)
            return
        keep_freed()
        self.check(self.trainer, data)
        self.diverged = None
        if not self.trainer.global_step:
            self._previous_update = None
            begin_anew(self.aggregator)
            begin_anew(self.adversary)
        if not self.trainer.global_step or not list(self.client.buffers()):
            self.client.prepare(self.model, data.everybody)
        self._homes = homes(self.client, data.everybody)

    def teardown(self, stage: str) -> None:
        """Give back the memory of the rounds."""
        self.storage.release()

    def check(self, trainer: pl.Trainer, data: FederatedDataModule) -> None:
        """Find rule and attack, and check that everything fits together.

        `setup` does so before any training; the command line asks earlier, before it creates any file.

        Args:
            trainer: The run's, with rule and attack among its callbacks.
            data: The run's, loaded and partitioned.

        Raises:
            SettingError: If it does not.
        """
        check_trainer(trainer)
        check_rounds(trainer)
        self.aggregator = _only(trainer, Aggregator) or Average()
        self.adversary = _only(trainer, Adversary)
        if data.federation.n_byzantine and self.adversary is None:
            raise SettingError(
                f"{data.federation.n_byzantine} Byzantine clients need an adversary, got none; choose one "
                f"(adversary=...) or set federation.n_byzantine=0."
            )
        if data.n_classes < 2:
            raise SettingError(f"a classifier needs at least 2 classes, the data have {data.n_classes}; choose others.")
        with concerning("aggregator"):
            self.aggregator.check_clients(data.federation)
            self.aggregator.check(data.federation.n, data.n_classes)
            check_server_data(self.aggregator, self.client, len(data.server), "set data.server_samples to at least 1")
        h, b = data.federation.present
        if self.adversary is not None:
            with concerning("adversary"):
                self.adversary.check_window(data.federation, trainer.max_steps)
                if b:
                    self.adversary.check(h, b, data.n_classes)
                self.adversary.check_client(self.client)
                self.adversary.check_data(data)
        self.model.to(data.train.targets.device)  # client state is allocated on the model's device
        with concerning("model"), trainer.precision_plugin.forward_context(), self._in_full():
            if trainer.precision == "64-true":
                self.model.double()
            data.place(data.train.targets.device, parameter_type(self.model))
            if isinstance(self.loss, nn.Module):
                self.loss.to(data.train.targets.device, parameter_type(self.model))
            self._let_pass(nullcontext)
            check_statistics(self.model, self.client, len(data.server))
            check_model(self.model, self.client, data.train, data.test)
        if isinstance(trainer.precision_plugin, MixedPrecision):
            trainer.precision_plugin.scaler = None  # the server steps in float32: nothing is to be scaled back
        self._let_pass(trainer.precision_plugin.forward_context)
        parameters = list(trainable(self.model).values())
        d = sum(value.numel() for value in parameters)
        for what, number in [("a test sample", len(data.test)), ("a parameter of the model", d)]:
            if trainer.world_size > number:
                raise SettingError(f"each of {trainer.world_size} processes needs {what}, got {number}; start fewer.")
        schedule = check_optimizer(self.make_optimizer, self.make_schedule, parameters)
        served = bool(self.aggregator.needs_server) or recomputes(self.model)
        check_privacy(self.client, served and not data.server_held_out, schedule)
        if type(self) is FederatedModule:  # another one may measure more
            check_monitors(trainer, self._measures(data))
        numbers = data.federation.n * d
        numbers *= 2 if trainer.world_size > 1 else 1  # each process's rows, and its columns of all
        self.storage.check(numbers // trainer.num_nodes, parameters[0].dtype, trainer.strategy.root_device)

    def _let_pass(self, passes: Callable[[], AbstractContextManager[None]]) -> None:
        """Tell the client, and the one that it wraps, in what context to pass through the model."""
        for part in self.client.modules():
            if isinstance(part, Client):
                part.passes = passes

    def _measures(self, data: FederatedDataModule) -> list[str]:
        """Name what callbacks may watch; what an attack measures of itself begins with attack/."""
        held = data.test.targets.bincount(minlength=data.n_classes).tolist()
        known = ["accuracy", *(f"recall/{z}" for z, n in enumerate(held) if n)]
        known += [] if data.federation.sampling == "bernoulli" else ["loss"]  # which may draw nobody
        known += ["mrd"] if self.reference_recall is not None else []
        known += [f"client_accuracy/{name}" for name in ("mean", "worst", "tenth") if data.client_scores]
        return known + (["validation_accuracy"] if data.validation is not None else [])

    @property
    def data(self) -> FederatedDataModule:
        """The trainer's data module."""
        data = getattr(self.trainer, "datamodule", None)
        if not isinstance(data, FederatedDataModule):
            raise SettingError(f"FederatedModule needs a FederatedDataModule, got {type(data).__name__}.")
        return data

    def _prepare_metrics(self, c: int) -> None:
        if self.reference_recall is not None:
            if len(self.reference_recall) != c:
                raise SettingError(f"the reference has {len(self.reference_recall)} recalls, the data {c} classes.")
            if not all(recall is None or 0 <= recall <= 1 for recall in self.reference_recall):
                raise SettingError(f"a reference's recalls are in [0, 1], got {self.reference_recall}.")
        self.counts = ClassCounts(c).to(self.device)

    def configure_optimizers(self) -> Any:
        """Make the server's optimizer and schedule."""
        optimizer = self.make_optimizer([p for p in self.model.parameters() if p.requires_grad])
        if self.make_schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self.make_schedule(optimizer)}

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the model's outputs."""
        answer: Tensor = self.model(inputs)
        return answer

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Compute the model's outputs for a batch of inputs, whatever comes with them."""
        return self(batch[0] if isinstance(batch, (list, tuple)) else batch)

    def training_step(self, batch: RoundBatch, batch_idx: int) -> dict[str, Any]:
        """Run one round.

        Returns:
            What the round's record holds: metrics, the rule's trust in each client if it is a weighting, and what it
            believes about their labels, if anything.
        """
        with self._in_full(), self._stopping(batch.index):
            varies, c = self.data.federation.varies, self.data.n_classes
            if not len(batch.honest) or (varies and not _serves(self.aggregator, len(batch.ids), c)):
                return self._skip(batch)
            clock, h = _Clock(self.device), len(batch.honest)
            columns, rows, server = self._begin(batch)
            honest = server.client.updates(self.model, batch.honest, server.round, out=rows[:h])
            loss = self._place(honest, rows[:h], batch.data_weights[:h])
            clock.mark("clients")
            with _explaining(loss):
                moments = self._attack(batch, rows, columns, server)
                clock.mark("attack")
                updates = _updates(batch, rows, columns, self.model)
                aggregation = aggregated(self.aggregator, updates, server)
                clock.mark("aggregator")
                measured, trust = _measure(updates, aggregation, h, moments, loss)
            clock.mark("robustness")
            self._server_step(aggregation.update, measured["loss"])
            clock.mark("server")
            metrics = {
                "loss": measured["loss"],
                "learning_rate": server.round.learning_rate,
                **measured,
                "communication/floats_up": updates.n * self.client.bits_up(updates.d) / 32,
                "communication/floats_down": float(updates.n * updates.d),
                "communication/sample_gradients": float(honest.sample_gradients),
                **self._drawn(batch),
                **clock.seconds(),
            }
            self._log(metrics)
            return {"metrics": metrics, "weights": trust, "label_distributions": aggregation.label_distributions}
        return {"metrics": {}, "weights": None, "label_distributions": None}

    def _drawn(self, batch: RoundBatch) -> dict[str, float]:
        """How many Byzantine clients take part, where that varies."""
        return {"byzantine_drawn": float(len(batch.byzantine))} if self.data.federation.varies else {}

    def _skip(self, batch: RoundBatch) -> dict[str, Any]:
        """End a round for which too few were drawn, with the model as it is."""
        for parameter in self.model.parameters():
            parameter.grad = None
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self._step(nan)
        metrics = {"learning_rate": rate, **self._drawn(batch)}
        self._log(metrics)
        return {"metrics": metrics, "weights": None, "label_distributions": None}

    def _in_full(self) -> torch.autocast:
        """Leave mixed precision, which Lightning enters for a whole step, to the clients' passes."""
        return torch.autocast(self.device.type, enabled=False)

    @contextmanager
    def _stopping(self, index: int) -> Iterator[None]:
        """Stop a run that diverges in this round; the parameters stay as the last finished round left them."""
        try:
            yield
        except DivergedError as error:
            self.diverged = f"round {index + 1}: {error}"
            self.trainer.should_stop = True

    def _begin(self, batch: RoundBatch) -> tuple[Block | None, Float[Tensor, "n _"], ModelOracle]:
        """Make room for the round's updates; where processes share it, for those columns that this one holds."""
        parameters = list(trainable(self.model).values())
        d = sum(value.numel() for value in parameters)
        columns = Block.here(d)  # None: this process holds all of them
        client = self.client if columns is None else Dealt(self.client, columns, self._homes, self.storage)
        rows = self.storage.matrix(len(batch.ids), d if columns is None else columns.width, parameters[0])
        this_round = Round(batch.index, self.trainer.optimizers[0].param_groups[0]["lr"], batch.seed)
        return columns, rows, ModelOracle(self.model, client, batch.server, this_round)

    def _place(self, honest: ClientResult, rows: Float[Tensor, "h _"], data_weights: Float[Tensor, " h"]) -> Tensor:
        """Put what the clients computed into the rows, where they need not have written it; return their mean loss.

        Raises:
            DivergedError: If it is on the CPU and not finite; on a GPU, which is waited for less, `_measure` raises it.
        """
        check_result(honest, rows, self.client)
        updates = honest.updates
        if updates.data_ptr() != rows.data_ptr() or updates.stride() != rows.stride():
            rows.copy_(updates)
        shares = data_weights / data_weights.sum()
        loss = honest.losses @ shares.to(honest.losses, non_blocking=True)
        if loss.device.type == "cpu":
            _check_loss(loss.item())
        return loss

    def _attack(
        self, batch: RoundBatch, rows: Float[Tensor, "n _"], columns: Block | None, server: ModelOracle
    ) -> tuple[Tensor, Tensor] | None:
        """Write what the Byzantine clients send into the last rows; return the honest rows' moments, if known."""
        h, b = len(batch.honest), len(batch.byzantine)
        varies = self.data.federation.varies
        if self.adversary is None or not (b or varies):
            return None
        everybody = _updates(batch, rows, columns, self.model)

        def ask(updates: Updates) -> Aggregation:
            asked = copy(updates)
            asked.data_weights, asked.ids, asked.layout = everybody.data_weights, everybody.ids, everybody.layout
            with server.guessed():
                return aggregated(self.aggregator, asked, server)

        context = AttackContext(
            self.model,
            server.client,
            batch.byzantine,
            ask,
            server.round,
            previous_update=None if self._previous_update is None else self._previous_update.to(rows),
            honest_ids=batch.honest.ids,
        )
        honest = _updates(batch, rows[:h], columns, self.model)
        attacks = varies and self.adversary.attacks_in(batch.index)
        if not b or (attacks and not _serves(self.adversary, h, b, self.data.n_classes)):
            self.adversary.watch(honest, context)
            rows[h:] = 0
            return honest.known_moments
        forged = self.adversary.send(honest, b, context)
        check_shape(f"the result of {type(self.adversary).__name__}.attack", forged, b, honest.d)
        forged = self.client.read(forged, batch.byzantine.ids, server.round)
        rows[h:] = forged if columns is None else columns.own(forged)
        return honest.known_moments

    def _log(self, metrics: dict[str, float]) -> None:
        """Give callbacks the loss and loggers everything; ``log`` would take Lightning half a millisecond each."""
        if "loss" in metrics:
            self.trainer.callback_metrics["loss"] = torch.tensor(metrics["loss"])
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and self.trainer.global_step % every == 0:
            self._tell_loggers(metrics)

    def _tell_loggers(self, metrics: dict[str, float]) -> None:
        for logger in self.loggers:
            logger.log_metrics(metrics, self.trainer.global_step)

    def _server_step(self, update: Float[Tensor, " d"], loss: float) -> None:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        for parameter, gradient in zip(parameters, unflatten(update, parameters), strict=True):
            parameter.grad = gradient.to(parameter)  # a rule may answer in another type
        self._previous_update = update.clone()  # the optimizer may write into the gradients
        self._step(loss)

    def _step(self, loss: float) -> None:
        """Let optimizer and schedule step; a loss that is NaN, of a round that was left out, is not watched."""
        optimizer: Any = self.optimizers()
        schedule: Any = self.lr_schedulers()
        optimizer.step()
        if schedule is not None and not (isnan(loss) and isinstance(schedule, ReduceLROnPlateau)):
            step(schedule, loss)

    def measured(self) -> dict[str, float]:
        """Measure accuracy and recalls of the model as it is, outside of Lightning's evaluations.

        Neither the attack nor any later evaluation is affected.
        """
        with evaluating(self.model):
            self.on_validation_epoch_start()
            return scores(self._count(self.data.test))

    def _count(self, samples: Samples) -> Counted:
        """Count samples by class, all of them in this process."""
        return count(self.model, samples, self.data.n_classes, self.data.eval_batch_size)

    def on_validation_epoch_start(self) -> None:
        """Compute running statistics anew, where they are the server's to compute."""
        if recomputes(self.model):
            x, _ = self.data.server.samples.gather(torch.cat(list(self.data.server.indices)))
            device = next(self.model.parameters()).device  # after fit, Lightning has left it on the CPU
            with self._in_full():
                recompute(self.model, [x[part].to(device) for part in apart(x)])

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Count one batch of test samples; if they are not to be computed apart, all are counted in the end."""
        if mixes(self.model):
            return
        inputs, targets = batch
        with self._in_full():
            self.counts.update(outputs(self.model, inputs, self.data.test), targets)

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        """Compute accuracy, recall of each class, confusion and, given a reference, max-recall-drop (in [0, 1]).

        A class without test samples has no recall, and max-recall-drop is that of the others.
        If the data keep samples for validation, also the accuracy on those; if they ask for it, also how the honest
        clients' accuracies spread.
        """
        together = mixes(self.model)  # each process evaluates all: what comes together changes the outputs
        counts: Counted = self._count(self.data.test) if together else self.counts.compute()
        self.counts.reset()
        self.confusion = None if counts.confusion is None else counts.confusion.tolist()
        self.evaluation = scores(counts, self.reference_recall)
        if self.data.client_scores:
            held = self.data.clients.class_counts()[self.data.federation.honest_ids]
            self.evaluation |= {f"client_accuracy/{name}": x for name, x in client_scores(counts, held).items()}
        if self.adversary is not None:
            observed = {} if counts.confusion is None else self.adversary.observe(counts.confusion.cpu())
            triggered = self.adversary.triggered(self.data.test)
            if triggered is not None:
                observed |= {"success_rate": self._count(triggered).accuracy}
            self.evaluation |= {f"attack/{name}": round(value, 6) for name, value in observed.items()}
        if self.data.validation is not None:
            self.evaluation["validation_accuracy"] = round(self._count(self.data.validation).accuracy, 6)
        told = self.evaluation
        if broken := int(counts.broken):
            self.diverged = (
                f"round {self.trainer.global_step}: the model's outputs are not finite for {broken} of "
                f"{counts.total.sum()} test samples"
            )
            self.trainer.should_stop = True
            # What such outputs predict means nothing, but callbacks ask for all of it.
            self.confusion, self.evaluation, told = None, {}, dict.fromkeys(told, nan)
        if self.trainer.state.fn != TrainerFn.FITTING:
            self.log_dict(told)  # Lightning returns them
        elif not self.trainer.sanity_checking:
            self.trainer.callback_metrics.update({name: torch.tensor(x) for name, x in told.items()})
            if self.evaluation:
                self._tell_loggers(self.evaluation)

    on_test_epoch_end = on_validation_epoch_end

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **settings: Any) -> Any:
        """Load a checkpoint into a new module; ``model=`` gives the model, which the checkpoint does not describe.

        Raises:
            SettingError: If no model is given.
            DataError: If the checkpoint is damaged, or holds more than tensors and plain Python values.
        """
        if "model" not in settings:
            raise SettingError(
                f"load_from_checkpoint needs the model, got none; give model=..., or take "
                f"lightning_fl.load_module({str(checkpoint_path)!r}), which makes it from the config.yaml of the run."
            )
        if settings.get("weights_only") is not False and isinstance(checkpoint_path, str | Path):
            from lightning_fl import files

            files.load(checkpoint_path)  # verifies what Lightning then reads
        return super().load_from_checkpoint(checkpoint_path, *args, **settings)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the last round's aggregated update, which attacks of the next round may use, and all clients' memory.

        Statistics that are the server's to compute are those of the parameters that are saved.
        """
        if recomputes(self.model):
            with evaluating(self.model):
                self.on_validation_epoch_start()
            held = self.model.named_buffers("model")
            checkpoint["state_dict"].update({name: b for name, b in held if name in checkpoint["state_dict"]})
        collect(self.client, self._homes, self.trainer.strategy.root_device)
        if self.adversary is not None:
            checkpoint["previous_update"] = self._previous_update

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another model; a run that does not train leaves its clients' memory.

        Raises:
            SettingError: If its tensors differ from this module's in name or shape, or a run that
                should continue from it has fewer rounds.
        """
        state = checkpoint["state_dict"]
        self._previous_update = checkpoint.get("previous_update")
        if self._trainer is None or self.trainer.state.fn != TrainerFn.FITTING:
            for name in [name for name in state if name.startswith("client.")]:
                del state[name]
            state.update({name: value for name, value in self.state_dict().items() if name.startswith("client.")})
        elif 0 <= self.trainer.max_steps < checkpoint["global_step"]:
            raise SettingError(
                f"the checkpoint has {checkpoint['global_step']} rounds behind it, got trainer.max_steps="
                f"{self.trainer.max_steps}; give as many at least."
            )
        theirs = {name: tuple(value.shape) for name, value in state.items()}
        ours = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        if theirs != ours:
            name = min(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
            raise SettingError(
                f"the checkpoint is of another model or client: {name} has shape {theirs.get(name, 'none')} there and "
                f"{ours.get(name, 'none')} here; resume with the settings in its run's config.yaml."
            )


def begin_anew(part: pl.Callback | None) -> None:
    """Give a rule or an attack the state in which a run first met it: another run teaches this one nothing."""
    if part is None:
        return
    if "_state_at_first" in vars(part):
        part.load_state_dict(deepcopy(vars(part)["_state_at_first"]))
    else:
        vars(part)["_state_at_first"] = deepcopy(part.state_dict())


def _serves(part: Aggregator | Adversary, *numbers: int) -> bool:
    """Whether a rule or an attack can serve a draw of so many clients, and classes."""
    try:
        part.check(*numbers)
    except SettingError:
        return False
    return True


def _updates(batch: RoundBatch, rows: Float[Tensor, "k _"], columns: Block | None, model: nn.Module) -> Updates:
    """The updates of the round's first k clients."""
    data_weights, ids = batch.data_weights[: len(rows)], batch.ids[: len(rows)]
    return Updates(rows, data_weights, ids, columns, layout_of(trainable(model)))


def _measure(
    updates: Updates, aggregation: Aggregation, h: int, moments: tuple[Tensor, Tensor] | None, loss: Float[Tensor, ""]
) -> tuple[dict[str, float], list[float] | None]:
    """Measure a round's update.

    Args:
        updates: The round's updates, honest ones first.
        aggregation: The rule's answer to them.
        h: Number of honest updates.
        moments: `Updates.known_moments` of the honest ones.  None: not known.
        loss: Mean loss of the honest clients.

    Returns:
        Metrics, and the rule's trust in each client, if it is a weighting.

    Raises:
        DivergedError: If the loss or the update is not finite.
    """
    update, trust = aggregation.update, aggregation.trusted
    read = _read(  # a GPU is waited for here, and nowhere else in a round of plain averaging
        norm=update.norm(),
        loss=loss,
        finite=update.isfinite().all(),
        deviation=quick_deviation(updates, update, h, moments),
        trust=update.new_empty(0) if trust is None else trust,
        sums=update.new_empty(0) if trust is None else torch.stack([trust[:h].sum(), trust[h:].sum()]),
    )
    _check_loss(read["loss"][0])
    if not read["finite"][0]:
        marks = updates.by_block(lambda rows: broken_rows(rows).double()).sum(0)
        broken = [i for i, mark in enumerate(marks.tolist()) if mark]
        whose = (
            f"non-finite updates: {_named(updates.ids, h, broken)}" if broken else "all updates are: the rule made it"
        )
        raise DivergedError(f"the aggregated update is not finite ({whose})")
    sums = dict(zip(["weight/honest", "weight/byzantine"][: 1 + (h < updates.n)], read["sums"], strict=False))
    diagnostics = {f"aggregator/{name}": float(value) for name, value in aggregation.diagnostics.items()}
    kappa = measured_kappa(updates, update, h, read["deviation"])
    metrics = {
        "loss": read["loss"][0],
        "update_norm": read["norm"][0],
        **sums,
        **_detected(aggregation, read["trust"], h),
        **diagnostics,
        "robustness/kappa": kappa,
    }
    return metrics, None if trust is None else read["trust"]


def _detected(aggregation: Aggregation, trust: Sequence[float], h: int) -> dict[str, float]:
    """Compare what the rule thinks of clients with what they are; empty where it says nothing of single ones."""
    if aggregation.suspicion is not None:
        accused = None if aggregation.accused is None else aggregation.accused.tolist()
        found = detection(aggregation.suspicion.tolist(), accused, h)
    else:
        found = detection([-share for share in trust], [share <= 0 for share in trust], h)
    return {f"detection/{name}": value for name, value in found.items()}


def _check_loss(loss: float) -> None:
    """Refuse a loss that is not finite: what rule and attack make of such updates would say nothing."""
    if not isfinite(loss):
        raise DivergedError(f"the honest clients' mean loss is {loss}")


@contextmanager
def _explaining(loss: Float[Tensor, ""]) -> Iterator[None]:
    """Say that the loss is not finite in place of any error that may come of it."""
    try:
        yield
    except Exception:
        _check_loss(loss.item())
        raise


class _Clock:
    """Times the phases of a round; on a GPU by marks in its queue, which nobody waits for."""

    def __init__(self, device: torch.device):
        self._device = device
        self._marks = [("", self._event(), perf_counter())]

    def mark(self, phase: str) -> None:
        """Note that a phase ends here."""
        self._marks.append((phase, self._event(), perf_counter()))

    def _event(self) -> Any:
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self) -> dict[str, float]:
        """Give how long each phase took; the last one of a GPU, until it was queued."""
        if self._device.type == "cuda":
            self._marks[-2][1].synchronize()  # what comes before it is finished, as its numbers were read
        taken = {}
        for (_, event, then), (phase, end, now) in pairwise(self._marks):
            last = phase == self._marks[-1][0]
            taken[f"seconds/{phase}"] = now - then if event is None or last else event.elapsed_time(end) / 1e3
        return taken


def _read(**numbers: Tensor) -> dict[str, list[float]]:
    """Fetch all numbers from the device at once; return each as a list."""
    device = numbers["norm"].device
    parts = []
    for number in numbers.values():
        prompt = number.device.type == "cpu"  # a copy to the CPU that nobody waits for is not there yet
        parts.append(number.detach().flatten().to(device, torch.float64, non_blocking=prompt))
    values = iter(torch.cat(parts).tolist())
    return {name: list(islice(values, len(part))) for name, part in zip(numbers, parts, strict=True)}


def _named(ids: Sequence[int] | None, h: int, rows: list[int]) -> str:
    """Name the clients of some rows, of which the first h are honest."""
    named = [f"{'honest' if i < h else 'Byzantine'} client {i if ids is None else ids[i]}" for i in rows[:3]]
    return f"{', '.join(named)}{f' and {len(rows) - 3} more' if len(rows) > 3 else ''}" if rows else "none"


def _only(trainer: pl.Trainer, kind: type) -> Any:
    found = [callback for callback in trainer.callbacks if isinstance(callback, kind)]  # type: ignore[attr-defined]
    if len(found) > 1:
        names = " and ".join(type(callback).__name__ for callback in found)
        raise SettingError(
            f"a run has at most one {kind.__name__}, got {names}; remove one from the trainer's callbacks."
        )
    return found[0] if found else None
