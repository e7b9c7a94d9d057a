"""A client's work, for all clients of a round at once."""

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int64
from pytorch_lightning.utilities.rank_zero import rank_zero_only
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.nn.utils.rnn import pad_sequence

from lightning_fl import seeding
from lightning_fl.augment import augmented
from lightning_fl.client.side_by_side import UnsupportedError, errors_of, fill, keeps_apart
from lightning_fl.errors import SettingError
from lightning_fl.loss.base import loss_of, sample_losses
from lightning_fl.network.dropout import KeyedDropout, client_keys, keys_in_order, sample_keys
from lightning_fl.network.facts import numbers_per_sample, once, uses_dropout
from lightning_fl.network.images import arranged, at_a_time, convolves_on_cpu
from lightning_fl.network.parameters import call_at, trainable, unflatten
from lightning_fl.network.statistics import mixes, stepping
from lightning_fl.ranges import Checked, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.updates.rows import check_shape

Sampling = Literal["epoch"]

# Gradients of this many numbers at a time: 256 MiB in float32.
_CHUNK_NUMBERS = 2**26
# Samples per client, on average, up to which clients are so little work that shared overhead matters.
_FEW_SAMPLES = 128
# Inputs, activations and gradients of this many numbers at a time, for such clients.
_NUMBERS_CPU, _NUMBERS_GPU = 2**24, 2**27
# Inputs of this many numbers at a time, for one client by itself: activations of more exceed the processor's cache.
_SLICE_NUMBERS = 400_000


@dataclass(frozen=True)
class ClientResult:
    """The updates of a group of clients, and their losses.

    Args:
        updates: (h, d) pseudo-gradients.
        losses: (h,) mean losses before the update.
        sample_gradients: Number of gradients of single samples that all clients computed together: the price of
            several local steps a round.
    """

    updates: Float[Tensor, "h d"]
    losses: Float[Tensor, " h"]
    sample_gradients: int


def check_result(found: object, rows: Float[Tensor, "h d"], client: nn.Module) -> None:
    """Check a client's answer, as a client may be a user's own.

    Args:
        found: The client's answer, a `ClientResult` if the client is right.
        rows: The rows of the round's matrix that the updates go to.
        client: The client that answered, for the error.

    Raises:
        SettingError: If it is not one update and one loss per row, of the rows' shape and type.
    """
    who = f"client {type(client).__name__}"
    if not isinstance(found, ClientResult):
        raise SettingError(f"{who} must return a ClientResult, got {type(found).__name__}.")
    if found.updates.shape != rows.shape or found.updates.dtype != rows.dtype:
        raise SettingError(
            f"{who} must return one update per client, {tuple(rows.shape)} of {rows.dtype}, got "
            f"{tuple(found.updates.shape)} of {found.updates.dtype}."
        )
    check_shape(f"the losses of {who}", found.losses, len(rows))


class Client(Checked, nn.Module, ABC):
    """The work of every honest client, and of every virtual client of the server, in a round.

    A client is a module without parameters: it keeps state that outlives a round in buffers, so that Lightning saves
    it in checkpoints.

    Args:
        client_chunk: Number of clients computed at a time: 1 is a plain loop, more is ``vmap`` over that many.  None:
            chosen by model, device and sizes.  Clients of few samples are computed `side_by_side` where the model
            allows it.  Others, and the server's virtual clients, are computed 1 at a time for a model with convolutions
            on a CPU; otherwise 10 at a time on a CPU (or as many as fit its cache, if these are at least 20) and 32 on
            other devices, as long as their gradients need at most 256 MiB.  The choice changes results by rounding
            only.

    Raises:
        SettingError: If a setting is out of the range that its annotation states.
    """

    serves_server: bool = True
    """Whether virtual clients of the server, of which it keeps no memory, can compute, too."""

    learning_rate: float | None = None
    """Rate of a client's own steps; None: the server's of the round."""

    moves_statistics: bool = False
    """Whether its uploads may hold running statistics beside gradients (``model.buffers=rule``)."""

    def __init__(self, client_chunk: PositiveInt | None = None):
        super().__init__()
        self.client_chunk = client_chunk
        self.passes: Callable[[], AbstractContextManager[None]] = nullcontext  # autocast, in mixed precision

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Make the state that outlives a round, as buffers in the order of client numbers; called before training.

        Args:
            model: The global model.
            clients: All clients that may take part, Byzantine ones included, and their samples.

        Raises:
            SettingError: If it does not fit.
        """

    def check_model(self, model: nn.Module) -> None:
        """Check that it can train this model; called before a run creates any file.

        Raises:
            SettingError: If it cannot.
        """

    @abstractmethod
    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Compute the clients' updates at the model's parameters, which are left unchanged.

        Args:
            model: The global model; a buffer that training would change is not supported.
            batch: The clients and their samples.
            this_round: The current round.
            out: (h, d) matrix to write the updates into.  None: a new one.

        Returns:
            The updates, pseudo-gradients in the order of ``model.parameters()``, and the losses.
        """

    def without_momentum(self) -> "Client":
        """The same work without momentum; this client's memory stays as it is.  By default the client itself."""
        return self

    def otherwise(self, learning_rate: float | None, epochs: int | None) -> "Client":
        """The same local training in another way, as an attacker may; this client and its memory stay as they are.

        Args:
            learning_rate: Rate of the local steps.  None: as here.
            epochs: How many times a client goes through its samples.  None: as here.

        Raises:
            SettingError: If it takes no local steps, or cannot take them so.
        """
        if learning_rate is None and epochs is None:
            return self
        raise SettingError(
            f"an attacker's own learning_rate and epochs need clients with local steps of their own, got "
            f"{self.spelled()}; choose client=fedavg, fedprox or local_optimizer, or leave them out."
        )

    def step_rate(self, this_round: Round) -> float:
        """The rate of a client's own steps."""
        return this_round.learning_rate if self.learning_rate is None else self.learning_rate

    def upload_rate(self, this_round: Round) -> float:
        """The rate eta at which a client's model w_i makes its upload (w - w_i) / eta; by default the server's."""
        return this_round.learning_rate

    def read(self, forged: Float[Tensor, "b d"], ids: Sequence[int], this_round: Round) -> Float[Tensor, "b d"]:
        """What the server reads of updates that Byzantine clients forge, where uploads are compressed.

        Args:
            forged: One row per client.
            ids: The clients' numbers.
            this_round: The current round.
        """
        return forged

    def bits_up(self, d: int) -> int:
        """How many bits a client sends in a round of d parameters, each a number of 32 bits."""
        return 32 * d

    def privacy(self, rounds: int) -> dict[str, float] | None:
        """What is proven of a client's privacy: epsilon, delta and the number of its uploads; None: nothing.

        Args:
            rounds: Number of rounds in which it took part.
        """
        return None

    def gradients(
        self, model: nn.Module, batch: ClientBatch, out: Tensor | None = None, at: Tensor | None = None
    ) -> ClientResult:
        """Compute each client's gradient of its mean loss (`lightning_fl.loss`) over its samples in the batch.

        Args:
            model: The global model.
            batch: The clients and their samples.
            out: (h, d) matrix to write the gradients into.  None: a new one.
            at: (h, d) parameters of each client.  None: all at the global model's.

        Returns:
            The gradients and the losses there.

        Raises:
            SettingError: If the model has dropout, or samples are augmented, and the batch does not say which round and
                step it is for, as those of `minibatches` do.
        """
        batch = augmented(batch)
        parameters = trainable(model)
        like = list(parameters.values())
        d = sum(value.numel() for value in like)
        rows = like[0].new_empty(len(batch), d) if out is None else out
        losses = like[0].new_empty(len(batch))
        rate = 1.0 if batch.drawing is None else self.step_rate(batch.drawing[0])
        with self.passes(), stepping(rate, _loss_scale(rows.device)):
            self._compute(model, batch, rows, losses, at)
        return ClientResult(rows, losses, sum(batch.sizes))

    def _compute(self, model: nn.Module, batch: ClientBatch, rows: Tensor, losses: Tensor, at: Tensor | None) -> None:
        """Write all gradients and losses."""
        device, d, alone = rows.device, rows.shape[1], mixes(model)
        work = _Work(model, batch, rows, losses, _keys(model, batch, device), at, _loss_scale(device))
        chunk = 1 if alone else self.client_chunk or default_client_chunk(model, d, device)
        free = not alone and self.client_chunk is None
        if free and sum(batch.sizes) <= _FEW_SAMPLES * len(batch) and min(batch.ids) >= 0:
            fitting = clients_that_fit(numbers_per_sample(model, batch.samples), batch.sizes, d, device)
            if fitting > 1 and work.side_by_side(fitting):
                return
            if chunk > 1 and fitting >= 2 * chunk:
                chunk = fitting
        if any(getattr(module, "scale_grad_by_freq", False) for module in model.modules()):
            chunk = 1  # vmap pads clients to one size, and an embedding would count the padding
        if chunk > 1 and free and not computed_at_once(model, batch.samples):
            chunk = 1
        if chunk == 1:
            for i in range(len(batch)):
                work.alone(i)
        else:  # clients of about the same size share a chunk, so that little is padded
            for clients in torch.tensor(batch.sizes).argsort(stable=True).split(chunk):
                work.at_once(clients)
        if work.scale != 1:
            rows /= work.scale
            losses /= work.scale


class LocalSteps(Client):
    """A client that takes local steps of its own before an upload."""

    epochs: int | None = None
    """How many times a client goes through its samples, in place of a number of steps; None: that number."""

    @abstractmethod
    def check_epochs(self) -> None:
        """Check that the other settings allow these epochs.

        Raises:
            SettingError: If they do not.
        """

    def otherwise(self, learning_rate: float | None, epochs: int | None) -> "LocalSteps":
        """Step at another rate or for other epochs; see the base class."""
        other = copy(self)
        other.learning_rate = self.learning_rate if learning_rate is None else learning_rate
        other.epochs = self.epochs if epochs is None else epochs
        other.check_epochs()
        return other


def minibatches(
    batch: ClientBatch,
    size: int | None,
    this_round: Round,
    steps: int = 1,
    sampling: Sampling | None = None,
    epochs: int | None = None,
) -> list[ClientBatch]:
    """Draw each client's mini-batches of this round, without replacement inside one.

    A client's draws depend on seed, round and its number alone, not on who else takes part.

    Args:
        batch: The clients and all their samples.
        size: Samples per mini-batch; a client with fewer uses all.  None: all.
        this_round: The current round.
        steps: Number of mini-batches per client.
        sampling: None: each from all samples, whatever was drawn before.  "epoch": without replacement through an
            epoch; its last mini-batch holds what is left, and the next epoch has another order.
        epochs: How many times each client goes through all its samples, in place of ``steps``, each time in a fresh
            order, the last mini-batch holding what is left; more samples take more steps.  None: ``steps``.

    Returns:
        One batch per step, of the clients that take it.

    Note:
        Epochs are counted as if the client took part in every round, always with as many steps: a client that was
        absent continues where it would be, so it misses some samples in its first epoch afterwards.
    """
    if size is None or not len(batch):
        return [replace(batch, drawing=(this_round, step)) for step in range(epochs or steps)]
    clients = zip(batch.ids, batch.sizes, strict=True)
    drawn = [list(_places(client, n, size, this_round, steps, sampling, epochs)) for client, n in clients]
    # One gather per step for all clients: a GPU is sent one tensor, not one per client.
    every = torch.cat(list(batch.indices))
    starts = torch.tensor([0, *batch.sizes[:-1]]).cumsum(0)
    found = []
    for k in range(max(map(len, drawn))):
        some = [i for i, each in enumerate(drawn) if k < len(each)]
        sizes = [drawn[i][k].shape[0] for i in some]
        begin = starts[some].repeat_interleave(torch.tensor(sizes), output_size=sum(sizes))
        chosen = torch.cat([drawn[i][k] for i in some]) + begin
        indices = every.index_select(0, chosen.to(every.device, non_blocking=True)).split(sizes)
        found.append(ClientBatch(batch.samples, indices, [batch.ids[i] for i in some], (this_round, k)))
    return found


def _places(
    client: int, n: int, size: int, this_round: Round, steps: int, sampling: Sampling | None, epochs: int | None
) -> Iterator[Tensor]:
    """Yield the positions, among a client's n samples, of its mini-batches; see `minibatches`."""
    if epochs is not None:
        for epoch in range(epochs):
            yield from torch.randperm(n, generator=this_round.generator("local epoch", client, epoch)).split(size)
    elif sampling is None:
        generator = this_round.generator("mini-batch", client)
        for _ in range(steps):
            yield torch.randperm(n, generator=generator)[:size]
    else:
        blocks, current, order = -(-n // size), -1, torch.empty(0)
        for draw in range(this_round.index * steps, (this_round.index + 1) * steps):
            epoch, block = divmod(draw, blocks)
            if epoch != current:
                current, generator = epoch, seeding.generator(this_round.seed, "epoch", client, epoch)
                order = torch.randperm(n, generator=generator)
            yield order[block * size : (block + 1) * size]


def rows_of(batch: ClientBatch, state: Tensor, who: str) -> Int64[Tensor, " h"]:
    """Find the clients' rows in the state that a method keeps.

    Args:
        batch: The clients.
        state: (n, ...), one row per client, by number.
        who: Name of the method, for the error.

    Returns:
        The number of each client's row.

    Raises:
        SettingError: For a client that has none: a virtual one of the server.
    """
    strangers = [client for client in batch.ids if not 0 <= client < len(state)]
    if strangers:
        raise SettingError(
            f"{who} remembers something of {len(state)} clients, got client {strangers[0]} of the server; rules "
            f"that let the server train need client=gradient or another without memory."
        )
    return torch.tensor(list(batch.ids)).to(state.device, non_blocking=True)


def default_client_chunk(model: nn.Module, d: int, device: torch.device) -> int:
    """Choose how many clients to compute at a time, from the model and the device alone."""
    if convolves_on_cpu(model, device):
        return 1
    return max(1, min(10 if device.type == "cpu" else 32, _CHUNK_NUMBERS // d))


def clients_that_fit(numbers: int, sizes: Sequence[int], d: int, device: torch.device) -> int:
    """Choose how many clients of few samples to compute at a time, from sizes and the device alone.

    Args:
        numbers: Inputs and activations of one sample.
        sizes: Samples of each client.
        d: Parameters.
        device: The device that computes them.

    Returns:
        As many clients as have 2^24 inputs, activations and gradients in all on a CPU, whose caches hold about as much,
        and 2^27 on other devices; at least 1.
    """
    room = _NUMBERS_CPU if device.type == "cpu" else _NUMBERS_GPU
    return max(1, int(room / (numbers * sum(sizes) / len(sizes) + d)))


@dataclass(frozen=True)
class _Work:
    """Clients whose gradients and losses are to be written, in one of three ways.

    Args:
        model: The model.
        batch: The clients and their samples.
        rows: (h, d) where the gradients go.
        losses: (h,) where the losses go.
        keys: (h,) each client's key for dropout.  None: for a model without dropout.
        at: (h, d) parameters of each client.  None: all at the model's.
        scale: By what gradients and losses are multiplied, except those of `side_by_side`.
    """

    model: nn.Module
    batch: ClientBatch
    rows: Tensor
    losses: Tensor
    keys: Tensor | None
    at: Tensor | None = None
    scale: float = 1.0

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The model's."""
        return trainable(self.model)

    def own(self, which: int | Tensor) -> dict[str, Tensor]:
        """The parameters of some clients, by name."""
        if self.at is None:
            return self.parameters
        return dict(zip(self.parameters, unflatten(self.at[which], [*self.parameters.values()]), strict=True))

    def side_by_side(self, chunk: int) -> bool:
        """Compute all, ``chunk`` clients side by side at a time, if the model allows it; tell whether it does."""
        batch, keys = self.batch, self.keys
        if not keeps_apart(self.model, batch.samples):
            return False
        for start in range(0, len(batch), chunk):
            part = slice(start, start + chunk)
            drawn = None if keys is None else keys_in_order(keys[part], batch.sizes[part])
            own = None if self.at is None else self.at[part]
            try:
                fill(self.model, batch.samples, batch.indices[part], drawn, self.rows[part], self.losses[part], own)
            except UnsupportedError:  # what depends on the samples, and those of `keeps_apart` did not show
                return False
        return True

    def alone(self, i: int) -> None:
        """Compute one client, a slice of its samples at a time."""
        model, indices, samples, out = self.model, self.batch.indices[i], self.batch.samples, self.rows[i]
        leaves = {name: value.detach().requires_grad_() for name, value in self.own(i).items()}
        loss = out.new_zeros(())
        if mixes(model):
            size = len(indices)
        elif convolves_on_cpu(model, out.device):
            size = at_a_time(model, samples)
        else:
            size = max(1, _SLICE_NUMBERS // samples.inputs[0].numel())
        keys = None if self.keys is None else sample_keys(self.keys[i], len(indices)).split(size)
        for k, part in enumerate(indices.split(size)):
            x, y = samples.gather(part)
            x = arranged(model, x)
            with torch.enable_grad(), nullcontext() if keys is None else KeyedDropout(keys[k]):
                loss += call_at(leaves, _back, model, x, y, self.scale * (len(part) / len(indices)))
        gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.to_dense() for leaf in leaves.values()]
        torch.cat([gradient.flatten() for gradient in gradients], out=out)
        self.losses[i] = loss

    def at_once(self, clients: Tensor) -> None:
        """Compute some clients by one vmap over them."""
        rows, held = self.rows, [self.batch.indices[i] for i in clients.tolist()]
        here, indices = clients.to(rows.device, non_blocking=True), pad_sequence(held, batch_first=True)
        sizes = torch.tensor([len(each) for each in held]).to(indices.device, non_blocking=True)
        mask = torch.arange(indices.shape[1], device=indices.device) < sizes[:, None]
        indices = torch.where(mask, indices, indices[:, :1])  # padded with a client's own sample: 0 * NaN is NaN
        x, y = self.batch.samples.gather(indices)
        drawn = None if self.keys is None else sample_keys(self.keys[here], indices.shape[1])
        in_dims = (None if self.at is None else 0, 0, 0, 0, None if drawn is None else 0)
        try:
            gradients, values = vmap(grad_and_value(_masked_loss(self.model)), in_dims=in_dims)(
                self.own(here), x, y, self.scale * mask.to(rows.dtype) / sizes[:, None], drawn
            )
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            raise SettingError(
                f"{type(self.model).__name__} does what torch.vmap cannot do for several clients at once; set "
                f"client_chunk=1 of the client. ({str(error).splitlines()[0]})"
            ) from error
        self.losses[here] = values
        start = 0
        for gradient in gradients.values():
            flat = gradient.reshape(len(clients), -1)
            rows[here, start : start + flat.shape[1]] = flat
            start += flat.shape[1]


def _keys(model: nn.Module, batch: ClientBatch, device: torch.device) -> Tensor | None:
    """Give each client's key for dropout; None for a model without dropout."""
    if not uses_dropout(model, batch.samples):
        return None
    if batch.drawing is None:
        raise SettingError(
            f"dropout draws by round and step, got a batch that names none; take it from minibatches or set p=0 "
            f"in {type(model).__name__}."
        )
    return client_keys(batch.ids, *batch.drawing).to(device)


def _back(model: nn.Module, x: Tensor, y: Tensor, share: float) -> Tensor:
    """Take a share of the mean loss backwards, and give it."""
    loss = loss_of(model, x, y) * share
    loss.backward()
    return loss.detach()


def _loss_scale(device: torch.device) -> float:
    """By what losses are scaled so that no gradient vanishes: float16 holds 6e-8 to 7e4, here then 6e-11 to 64."""
    half = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.float16
    return 1024.0 if half else 1.0


@once
def computed_at_once(model: nn.Module, samples: Samples) -> bool:
    """Find out whether ``vmap`` gives what plain autograd gives, and tell if it does not; see `errors_of`."""

    def compute(model: nn.Module, batch: ClientBatch, keys: Tensor, rows: Tensor, losses: Tensor) -> None:
        _Work(model, batch, rows, losses, keys).at_once(torch.arange(2))

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop")  # vmap computes one by one, too, but slowly
        errors = errors_of(model, samples, compute)
    rounding = 0.05 if torch.is_autocast_enabled(samples.targets.device.type) else 1e-3
    if errors is not None and not any(error > rounding for error in errors):
        return True
    rank_zero_only(print)(
        f"{type(model).__name__} does what cannot be computed for several clients at once: each is computed by itself "
        f"(client_chunk=1).",
        file=sys.stderr,
    )
    return False


def _masked_loss(model: nn.Module) -> Callable[..., Tensor]:
    def each(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return sample_losses(model, model(x), y)

    def loss(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor, share: Tensor, keys: Tensor | None) -> Tensor:
        with nullcontext() if keys is None else KeyedDropout(keys):
            losses = call_at(parameters, each, model, x, y)
        with torch.autocast(share.device.type, enabled=False):
            return losses.to(share.dtype) @ share

    return loss
