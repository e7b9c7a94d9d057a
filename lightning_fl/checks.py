"""Checks of a run's parts before any training; each raises a SettingError."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.client.base import Client
from lightning_fl.errors import SettingError, concerning
from lightning_fl.network.dropout import KeyedDropout
from lightning_fl.network.layers import evaluating
from lightning_fl.network.parameters import trainable
from lightning_fl.network.statistics import layers, mixes
from lightning_fl.samples import Samples
from lightning_fl.text import said
from lightning_fl.trial import calls, check_trial, random_states

# What runs a module that is inside, or made from it, in its own way.
_WRAPPERS = (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)
# What Lightning takes for these.
_PRECISIONS = {"32", "32-true", "64", "64-true", "16", "16-mixed", "bf16", "bf16-mixed"}
_NO_ROUNDS = "a run has trainer.max_steps rounds, each on all of its clients"
_ALL_SAMPLES = "every evaluation is of all test samples"
_ONE_STEP = "the server steps once per round, by its own optimizer (server=...)"
_OURS: dict[str, tuple[str, tuple[object, ...]]] = {
    # Settings of Lightning's trainer that have no meaning for rounds, and the values that change nothing.
    "fast_dev_run": (f"{_NO_ROUNDS}; for a short one set trainer.max_steps=1 and logger=none", ()),
    "min_steps": ("a run has trainer.max_steps rounds", ()),
    "max_epochs": ("a run is one epoch of trainer.max_steps rounds", (-1,)),
    "min_epochs": ("a run is one epoch of trainer.max_steps rounds", (0,)),
    "limit_train_batches": (_NO_ROUNDS, (1.0,)),
    "limit_val_batches": (f"{_ALL_SAMPLES}; 0 leaves only the last one", (1.0, 0, 0.0)),
    "limit_test_batches": (_ALL_SAMPLES, (1.0,)),
    "overfit_batches": (_NO_ROUNDS, (0, 0.0)),
    "check_val_every_n_epoch": ("trainer.val_check_interval counts rounds", (1,)),
    "accumulate_grad_batches": (_ONE_STEP, (1,)),
    "gradient_clip_val": (_ONE_STEP, ()),
    "gradient_clip_algorithm": (_ONE_STEP, ()),
    "barebones": ("a run leaves its record", ()),
}
_ELSEWHERE = {"logger": "choose logger=...", "default_root_dir": "set hydra.run.dir=FOLDER"}


def check_trainer_settings(given: Mapping[str, Any], spelled: str = "", taken: Collection[str] = ()) -> None:
    """Check that settings of Lightning's trainer have a meaning for federated rounds.

    Args:
        given: The settings.
        spelled: Prefix of their names in errors, such as ``trainer.``.
        taken: Names of settings to accept, as they mean something to the caller.

    Raises:
        SettingError: If one has none.
    """
    for key, (why, harmless) in (_OURS | {key: (why, ()) for key, why in _ELSEWHERE.items()}).items():
        value = given.get(key)
        known = any(type(value) is type(other) and value == other for other in (None, False, *harmless))
        if key not in taken and not known:
            raise SettingError(f"{spelled}{key} is not for federated rounds, got {value!r}: {why}; leave it out.")
    check_precision(given.get("precision"), f"{spelled}precision")


def check_rounds(trainer: pl.Trainer) -> None:
    """Check what a trainer that somebody has made is to do: so many rounds, and nothing that has no meaning for them.

    Raises:
        SettingError: If it is something else.
    """
    if trainer.max_steps < 1:
        raise SettingError("a run needs its number of rounds; set trainer.max_steps to at least 1.")
    check_trainer_settings({key: getattr(trainer, key, None) for key in _OURS})


def check_monitors(trainer: pl.Trainer, known: Collection[str]) -> None:
    """Check that what callbacks such as EarlyStopping watch is measured; Lightning would find out after some rounds.

    Raises:
        SettingError: If it is not.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        watched = getattr(callback, "monitor", None)
        if isinstance(watched, str) and watched not in known and not watched.startswith("attack/"):
            raise SettingError(
                f"{type(callback).__name__} needs a monitor that every evaluation measures, got {watched}; choose one "
                f"of {', '.join(known)}."
            )


def check_trainer(trainer: pl.Trainer) -> None:
    """Check that rounds can be computed on it: with our strategy if by several processes, in a type that they know."""
    if trainer.world_size > 1:
        from lightning_fl.strategy.client_parallel import ClientParallel  # takes Hydra with it

        if not isinstance(trainer.strategy, ClientParallel):
            raise SettingError(
                f"a round over {trainer.world_size} processes needs lightning_fl's strategy ClientParallel, got "
                f"{type(trainer.strategy).__name__}; leave trainer.strategy out, or give the trainer "
                f"strategy=ClientParallel()."
            )
    check_precision(trainer.precision)
    if trainer.strategy.root_device.type == "mps":
        raise SettingError("inner products need float64, which MPS lacks; set trainer.accelerator=cpu.")


def check_precision(given: object, name: str = "precision") -> None:
    """Check the trainer's precision.

    Args:
        given: The precision as it was typed.  None: not set.
        name: Name of the setting, for the error.
    """
    if given is not None and str(given) not in _PRECISIONS:
        raise SettingError(
            f"{name} must be 32-true, 64-true (the whole round), or bf16-mixed or 16-mixed (clients' passes; updates "
            f"stay float32), got {given}."
        )


def in_float64(precision: object) -> bool:
    """Whether a trainer's precision, as it was typed, is that of whole rounds in float64."""
    return str(precision) in ("64", "64-true")


def parameter_type(model: nn.Module) -> torch.dtype:
    """Find the type in which a round computes, that of all the parameters that are trained."""
    trained = trainable(model)
    if not trained:
        raise SettingError(
            f"{type(model).__name__} has no parameter that is trained; leave requires_grad on for one at least."
        )
    types = {value.dtype: name for name, value in trained.items()}
    if len(types) > 1 or not types.keys() <= {torch.float32, torch.float64}:
        named = ", ".join(f"{name} of {str(dtype).removeprefix('torch.')}" for dtype, name in types.items())
        raise SettingError(
            f"{type(model).__name__} needs trained parameters of one type, float32 or float64, got {named}; call "
            f"float() or double() of it, or freeze the others; for faster passes set trainer.precision=bf16-mixed."
        )
    return next(iter(types))


def check_server_data(rule: Aggregator, client: Client, n_samples: int, advice: str) -> None:
    """Check that the server has what the rule asks of it: samples, and a client that it can run."""
    if rule.needs_server and not n_samples:
        raise SettingError(f"{type(rule).__name__} needs server data, got none; {advice}.")
    if rule.needs_server == "updates" and not client.serves_server:
        raise SettingError(
            f"{type(rule).__name__} needs a client that the server can run, too, got {type(client).__name__}, which "
            f"remembers every client; choose client=gradient or another rule."
        )


def check_optimizer(
    make_optimizer: Callable[[Sequence[nn.Parameter]], Optimizer],
    make_schedule: Callable[[Optimizer], LRScheduler] | None = None,
    like: Sequence[Tensor] = (),
) -> LRScheduler | None:
    """Check the server's optimizer and schedule: make both for zeros, and let them step.

    Args:
        make_optimizer: Makes the optimizer.
        make_schedule: Makes the schedule.  None: there is none.
        like: Tensors of the sizes that the optimizer is to train; by default one number.

    Returns:
        The schedule, which has stepped once.
    """
    parameters = [nn.Parameter(torch.zeros_like(value)) for value in like or [torch.zeros(1)]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    with _refusals("server"):
        optimizer = make_optimizer(parameters)
        taken = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if left := sum(id(parameter) not in taken for parameter in parameters):
            raise SettingError(
                f"the optimizer must train every parameter that requires a gradient, got {len(parameters) - left} of "
                f"{len(parameters)}; give it the others, or turn their requires_grad off."
            )
    with _refusals("schedule"):
        schedule = None if make_schedule is None else make_schedule(optimizer)
    with _refusals("server"):
        optimizer.step()
    if schedule is not None:
        with _refusals("schedule"):
            step(schedule, 0.0)
    return schedule


def check_privacy(client: Client, on_samples: bool, schedule: LRScheduler | None) -> None:
    """Check that nothing steers a run that tells an epsilon but what clients send.

    Args:
        client: It tells one, or not.
        on_samples: Whether the server computes on samples that clients hold, too.
        schedule: The rate's.
    """
    if client.privacy(0) is None:
        return
    if on_samples:
        raise SettingError(
            "an epsilon needs a server that computes on no client's samples, got data.server_held_out=false; set it to "
            "true, or client.delta=null."
        )
    if isinstance(schedule, ReduceLROnPlateau):
        raise SettingError(
            "an epsilon needs a rate that does not follow clients' losses, got a schedule that waits for a plateau; "
            "choose another, or set client.delta=null."
        )


def step(schedule: LRScheduler, loss: float) -> None:
    """Let a schedule go on to the next round; one that waits for a plateau watches the honest clients' mean loss."""
    if isinstance(schedule, ReduceLROnPlateau):
        schedule.step(loss)
    else:
        schedule.step()


@contextmanager
def _refusals(part: str) -> Iterator[None]:
    """Turn what another library's class refuses into an error about its settings."""
    with concerning(part):
        try:
            yield
        except SettingError:
            raise
        except Exception as error:  # the library decides which
            raise SettingError(said(error, named=True)) from error


def refuse_hidden_state(model: nn.Module, statistics: bool = False) -> None:
    """Refuse a model that is wrapped or has gradient hooks, keeps batch statistics, or draws what no seed governs.

    Args:
        model: The model.
        statistics: Whether something else becomes of those of batch normalisation (``buffers``).
    """
    who = type(model).__name__
    for name, module in model.named_modules():
        where = f"{name or 'itself'} ({type(module).__name__})"
        if "_orig_mod" in module._modules or module._compiled_call_impl is not None:
            raise SettingError(
                f"clients need a model that is not compiled, got torch.compile in {where}; give the model as it was "
                f"before, which torch.compile keeps as _orig_mod."
            )
        if isinstance(module, _WRAPPERS):
            raise SettingError(
                f"clients need plain modules, which can be computed with other parameters, got {where}; give the "
                f"module inside, as it was before it was scripted or spread over devices."
            )
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise SettingError(
                f"{who} does not know the size of {where} yet; call it on a sample where it is made, or use the layer "
                f"that is not lazy."
            )
        if statistics and isinstance(module, nn.modules.batchnorm._BatchNorm):
            continue
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats:
            raise SettingError(
                f"{who} mixes the samples of a batch in {where}, so that what is computed together "
                f"would change the result; use GroupNorm or LayerNorm, or set model.buffers (in Python buffers=) to "
                f"batch, recompute or rule."
            )
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats and module.training:
            raise SettingError(
                f"{who} keeps batch statistics in {where}, which clients do not upload; use GroupNorm "
                f"(fl.model.with_group_norm(model)) or LayerNorm, freeze them by eval() of that layer, or say what "
                f"becomes of them by model.buffers (in Python buffers=): batch, recompute or rule."
            )
        if isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout) and module.p > 0:
            raise SettingError(
                f"{who} draws random numbers in {where}, which no seed of a round governs; use nn.Dropout or set p=0."
            )
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise SettingError(
                f"clients need parameters without gradient hooks, which copies of a model lose, got one on {name} of "
                f"{who}; freeze whole parameters by requires_grad_(False), or let forward mask the weights."
            )
    for name, value in model.named_parameters():
        if any(stride == 0 and size > 1 for stride, size in zip(value.stride(), value.shape, strict=True)):
            raise SettingError(
                f"{who} has one number in many places of {name} (expand()), which no optimizer can change; add "
                f".clone() where it is made."
            )


def check_model(model: nn.Module, client: Client, *data: Samples) -> None:
    """Check that the model takes the data, gives what is wanted, and trains as plain autograd would (`check_trial`).

    Args:
        model: The model, in the mode in which it is trained.
        client: The clients' work.
        data: Samples that the model must take; two of the first are tried.
    """
    parameter_type(model)
    targets = data[0].targets
    other = (targets != targets[0]).nonzero().flatten().tolist() or [len(targets) - 1]
    inputs, labels = data[0].gather(torch.tensor([0, other[0]], device=targets.device))
    tried = 2 if mixes(model) else 1  # samples
    advice = "choose another model"
    length = inputs[0].numel()
    first = next((layer.in_features for layer in model.modules() if isinstance(layer, nn.Linear)), length)
    if first != length and "in_features" in signature(type(model)).parameters:
        advice = f"set model.in_features={length}, or {advice}"
    elif inputs.dim() == 4 and _channels(model) not in (None, inputs.shape[1]):
        advice = f"set model.in_channels={inputs.shape[1]}, or {advice}"
    if not inputs.is_floating_point():  # numbers of tokens: the model must know the largest, and any below 0
        low, high = min(int(each.inputs.min()) for each in data), max(int(each.inputs.max()) for each in data)
        inputs.view(2, -1)[:, -1] = low if low < 0 else high
        advice = (
            f"whole numbers, here {low} to {high}, are tokens from 0, for a model of texts such as model=gru; give "
            f"pixels as x.byte(), others as x.float()"
        )
    name, shape, n_classes = type(model).__name__, tuple(inputs.shape[1:]), data[0].n_classes
    if not model.training and any(isinstance(x, nn.modules.dropout._DropoutNd) and x.p for x in model.modules()):
        raise SettingError(f"{name} has dropout and is in evaluation mode, which turns it off; call train() of it.")

    def trained() -> Any:
        with torch.no_grad(), KeyedDropout(inputs.new_zeros(1, dtype=torch.int64)):
            return model(inputs[:tried])

    def evaluated() -> Any:
        with torch.no_grad(), evaluating(model):
            return model(inputs[:tried])

    def outputs_of(once: Callable[[], Any], when: str) -> Any:
        states = random_states(inputs.device)
        try:
            made = once()
        except Exception as error:  # a model may raise anything about what it does not take
            raise SettingError(
                f"{name} does not take inputs of shape {shape}{when}: {said(error)}; {advice}."
            ) from error
        if states != random_states(inputs.device):
            seen = calls(model, once, lambda _: random_states(inputs.device))
            drawing = next((call.where for call in seen if call.given != call.made), "itself")
            raise SettingError(
                f"{name} draws random numbers outside nn.Dropout{when}, in {drawing}, which no seed of a round "
                f"governs; use nn.Dropout layers, F.dropout with training=self.training, or none."
            )
        return made

    buffers = {where: (buffer, buffer._version, buffer.clone()) for where, buffer in model.named_buffers()}
    weights = {where: weight.detach().clone() for where, weight in model.named_parameters()}
    outputs = outputs_of(trained, "")
    after = dict(model.named_buffers())
    for where, (buffer, version, value) in buffers.items():
        # Whatever is written now, as spectral_norm writes what it knows already, will differ once the weights do.
        written = after[where] is buffer and buffer._version != version
        if written or not _same(value, after[where]):
            raise SettingError(f"{name} changes its buffer {where} in training, which clients do not upload.")
    for where, weight in model.named_parameters():
        if not _same(weights[where], weight.detach()):
            raise SettingError(
                f"{name} changes its parameter {where} in its forward, as max_norm and .data do, which no update "
                f"shows; leave that to the optimizer."
            )
    outputs_of(evaluated, " in evaluation")
    if not isinstance(outputs, Tensor):
        raise SettingError(f"{name} must give one tensor, (batch, classes), got {type(outputs).__name__}.")
    if outputs.ndim != 2 or len(outputs) != tried:
        advice = "keep the batch dimension, which squeeze() and mean() drop"
        if not outputs.ndim:
            advice = (
                "give logits; the loss is a setting (loss=..., fl.train(loss=...)) or the model's method sample_losses"
            )
        raise SettingError(
            f"{name} must give one row of {n_classes} outputs per sample, (1, {n_classes}) for one, got shape "
            f"{tuple(outputs.shape)}; {advice}."
        )
    if outputs.shape[1] != n_classes:
        more = f", or n_classes={c} of the data if they lack some" if (c := outputs.shape[1]) > n_classes else ""
        raise SettingError(
            f"the data have {n_classes} classes, {name} gives outputs of shape {tuple(outputs.shape[1:])}; set "
            f"model.n_classes={n_classes}{more}."
        )
    with concerning("client"):
        for part in client.modules():  # the one that it wraps, too
            if isinstance(part, Client):
                part.check_model(model)
    check_trial(model, client, Samples(inputs, labels, n_classes))


def _channels(model: nn.Module) -> int | None:
    """The channels that a model's first convolution takes, where they are a setting; None: they are not."""
    first = next((layer.in_channels for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    return first if "in_channels" in signature(type(model)).parameters else None


def check_statistics(model: nn.Module, client: Client, n_server: int) -> None:
    """Check that clients can compute whole batches together, and that somebody has the statistics of evaluation.

    Args:
        model: The model, in the mode in which it is trained.
        client: The clients' work.
        n_server: Samples that the server holds.

    Raises:
        SettingError: If not.
    """
    kinds = {layer.how for layer in layers(model)}
    if kinds and client.client_chunk not in (None, 1):
        raise SettingError(
            f"batch normalisation is computed for one client at a time, got client_chunk={client.client_chunk}; set "
            f"client.client_chunk=null."
        )
    if "recompute" in kinds and not n_server:
        raise SettingError(
            "model.buffers=recompute computes statistics on the server's samples, got none; set data.server_samples, "
            "or model.buffers=batch."
        )
    if "rule" in kinds and not client.moves_statistics:
        raise SettingError(
            f"model.buffers=rule is for clients whose uploads are sums of their steps, such as gradient and fedavg, "
            f"got {client.spelled()}; choose one of these, or model.buffers=batch or recompute."
        )


def _same(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors hold the same; NaN is NaN."""
    return before.shape == after.shape and bool(((before == after) | (before.isnan() & after.isnan())).all())
