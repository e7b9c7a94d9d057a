"""What a run's parts must be, checked before any training; each function raises a SettingError if one is not."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.client.base import Client
from lightning_fl.dropout import KeyedDropout, uses_dropout
from lightning_fl.errors import SettingError, concerning
from lightning_fl.parameters import trainable
from lightning_fl.samples import Samples
from lightning_fl.strategy.client_parallel import ClientParallel
from lightning_fl.trial import calls, check_trial, random_states


def check_trainer(trainer: pl.Trainer) -> None:
    """Check that rounds can be computed on it: with our strategy if by several processes, in float32."""
    if trainer.world_size > 1 and not isinstance(trainer.strategy, ClientParallel):
        raise SettingError(
            f"a round over {trainer.world_size} processes needs lightning_fl's strategy ClientParallel, got "
            f"{type(trainer.strategy).__name__}; leave trainer.strategy out, or give the trainer "
            f"strategy=ClientParallel()."
        )
    if trainer.precision != "32-true":
        raise SettingError(
            f"a round computes in float32, its inner products in float64, got trainer.precision={trainer.precision}; "
            f"leave it at 32-true."
        )
    if trainer.strategy.root_device.type == "mps":
        raise SettingError("inner products need float64, which MPS lacks; set trainer.accelerator=cpu.")


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
    make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
    make_schedule: Callable[[Optimizer], LRScheduler] | None = None,
) -> None:
    """Check the server's optimizer and schedule: make both for a dummy parameter, and let them step."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    with _refusals("server"):
        optimizer = make_optimizer([parameter])
    with _refusals("schedule"):
        schedule = None if make_schedule is None else make_schedule(optimizer)
    with _refusals("server"):
        optimizer.step()
    if schedule is not None:
        with _refusals("schedule"):
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
            raise SettingError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def refuse_hidden_state(model: nn.Module) -> None:
    """Refuse a model that is compiled or has gradient hooks, keeps batch statistics, or draws what no seed governs."""
    who = type(model).__name__
    for name, module in model.named_modules():
        where = f"{name or 'itself'} ({type(module).__name__})"
        if "_orig_mod" in module._modules or module._compiled_call_impl is not None:
            raise SettingError(
                f"clients need a model that is not compiled, got torch.compile in {where}; give the model as it was "
                f"before, which torch.compile keeps as _orig_mod."
            )
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.track_running_stats:
            raise SettingError(
                f"{who} mixes the samples of a batch in {where}, so that what is computed together "
                f"would change the result; use GroupNorm or LayerNorm."
            )
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            raise SettingError(
                f"{who} keeps batch statistics in {where}, which clients do not upload; use GroupNorm or LayerNorm."
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


def check_model(model: nn.Module, client: Client, *data: Samples) -> None:
    """Check that the model takes the data, gives what is wanted, and trains as plain autograd would (`check_trial`).

    Args:
        model: The model, in the mode in which it is trained.
        client: How clients are computed.
        data: What it must take; two samples of the first are tried.
    """
    if not trainable(model):
        raise SettingError(
            f"{type(model).__name__} has no parameter that is trained; leave requires_grad on for one at least."
        )
    targets = data[0].targets
    other = (targets != targets[0]).nonzero().flatten().tolist() or [len(targets) - 1]
    inputs, labels = data[0].gather(torch.tensor([0, other[0]], device=targets.device))
    advice = "choose another model"
    if not inputs.is_floating_point():  # numbers of tokens: the model must know the largest, and any below 0
        low, high = min(int(each.inputs.min()) for each in data), max(int(each.inputs.max()) for each in data)
        inputs.view(2, -1)[:, -1] = low if low < 0 else high
        advice = f"whole numbers, here {low} to {high}, are tokens from 0; give pixels as x.byte(), others as x.float()"
    name, shape, n_classes = type(model).__name__, tuple(inputs.shape[1:]), data[0].n_classes
    if uses_dropout(model) and not model.training:
        raise SettingError(f"{name} has dropout and is in evaluation mode, which turns it off; call train() of it.")

    def once() -> Any:
        keyed = KeyedDropout(inputs.new_zeros(1, dtype=torch.int64)) if uses_dropout(model) else nullcontext()
        with torch.no_grad(), keyed:
            return model(inputs[:1])

    states = random_states(inputs.device)
    buffers = {where: (buffer, buffer._version, buffer.clone()) for where, buffer in model.named_buffers()}
    try:
        outputs = once()
    except Exception as error:  # a model may raise anything about what it does not take
        why = " ".join(str(error).split()) or type(error).__name__
        raise SettingError(f"{name} does not take inputs of shape {shape}: {why}; {advice}.") from error
    if states != random_states(inputs.device):
        drawn = [
            call.where for call in calls(model, once, lambda _: random_states(inputs.device)) if call.given != call.made
        ]
        raise SettingError(
            f"{name} draws random numbers outside nn.Dropout, in {drawn[0] if drawn else 'itself'}, which no seed of a "
            f"round governs; use nn.Dropout layers or turn them off."
        )
    after = dict(model.named_buffers())
    for where, (buffer, version, value) in buffers.items():
        # Whatever is written now, as spectral_norm writes what it knows already, will differ once the weights do.
        written = after[where] is buffer and buffer._version != version
        if written or not _same(value, after[where]):
            raise SettingError(f"{name} changes its buffer {where} in training, which clients do not upload.")
    if not isinstance(outputs, Tensor):
        raise SettingError(f"{name} must give one tensor, (batch, classes), got {type(outputs).__name__}.")
    if outputs.ndim != 2 or len(outputs) != 1:
        advice = "keep the batch dimension, which squeeze() and mean() drop"
        if not outputs.ndim:
            advice = "give logits, of which clients take the cross-entropy or the model's method sample_losses"
        raise SettingError(
            f"{name} must give one row of {n_classes} outputs per sample, (1, {n_classes}) for one, got shape "
            f"{tuple(outputs.shape)}; {advice}."
        )
    if outputs.shape[1] != n_classes:
        raise SettingError(
            f"the data have {n_classes} classes, {name} gives outputs of shape {tuple(outputs.shape[1:])}; set "
            f"model.n_classes={n_classes}."
        )
    check_trial(model, client, Samples(inputs, labels, n_classes))


def _same(before: Tensor, after: Tensor) -> bool:
    """Whether two tensors hold the same; NaN is NaN."""
    return before.shape == after.shape and bool(((before == after) | (before.isnan() & after.isnan())).all())
