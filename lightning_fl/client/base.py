"""What a client computes: all clients of a round as one batched computation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.utils.rnn import pad_sequence

from lightning_fl.errors import SettingError
from lightning_fl.samples import ClientBatch
from lightning_fl.updates import trainable

# Gradients of this many numbers at a time: 256 MiB in float32.
_CHUNK_NUMBERS = 2**26


@dataclass(frozen=True)
class ClientResult:
    """What a group of clients computed: their updates and their mean losses before the update."""

    updates: Float[Tensor, "h d"]
    losses: Float[Tensor, " h"]


class Client(nn.Module, ABC):
    """What every honest client (and every virtual client of the server) does in a round.

    A module without parameters: state that outlives a round is kept in buffers, so that Lightning checkpoints it.

    Args:
        client_chunk: Clients computed at a time: 1 is a plain loop, more is ``vmap`` over that many.  None: 1 for a
            model with convolutions on a CPU, else 10 on a CPU and 32 on other devices, as far as 256 MiB of
            gradients allow.  The numbers are the same up to rounding.

    Raises:
        SettingError: If client_chunk is below 1.
    """

    def __init__(self, client_chunk: int | None = None):
        super().__init__()
        if client_chunk is not None and client_chunk < 1:
            raise SettingError(f"client.client_chunk must be at least 1 (or null), got {client_chunk}.")
        self.client_chunk = client_chunk

    @abstractmethod
    def updates(self, model: nn.Module, batch: ClientBatch, out: Tensor | None = None) -> ClientResult:
        """Compute the clients' updates at the model's parameters, which stay as they are.

        Args:
            model: The global model; a buffer that training would change is not supported.
            batch: The clients and their samples.
            out: (h, d) matrix to write the updates into.  None: a new one.

        Returns:
            The updates, pseudo-gradients in the order of ``model.parameters()``, and the losses.
        """

    def gradients(self, model: nn.Module, batch: ClientBatch, out: Tensor | None = None) -> ClientResult:
        """Compute each client's gradient of its mean cross-entropy over all its samples; see `updates`."""
        parameters = trainable(model)
        d = sum(value.numel() for value in parameters.values())
        first = next(iter(parameters.values()))
        rows = first.new_empty(len(batch), d) if out is None else out
        losses = first.new_empty(len(batch))
        chunk = self.client_chunk or default_client_chunk(model, d, first.device)
        if chunk == 1:
            for i, indices in enumerate(batch.indices):
                losses[i] = _one_gradient(model, parameters, *batch.samples.gather(indices), out=rows[i])
        else:
            # Clients of about the same size share a chunk, so that little is padded.
            order = torch.tensor(batch.sizes).argsort(stable=True)
            for clients in order.split(chunk):
                _chunk_gradients(model, parameters, batch, clients, rows, losses)
        return ClientResult(rows, losses)


def default_client_chunk(model: nn.Module, d: int, device: torch.device) -> int:
    """Choose how many clients to compute at a time, from the model and the device alone."""
    if device.type == "cpu" and any(isinstance(module, nn.modules.conv._ConvNd) for module in model.modules()):
        return 1
    return max(1, min(10 if device.type == "cpu" else 32, _CHUNK_NUMBERS // d))


def _one_gradient(model: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    with torch.enable_grad():
        loss = F.cross_entropy(functional_call(model, leaves, (x,)), y)
        gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    torch.cat([gradient.flatten() for gradient in gradients], out=out)
    return loss.detach()


def _masked_loss(model: nn.Module) -> Callable[..., Tensor]:
    def loss(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, dict(parameters), (x,)), y, reduction="none") @ share

    return loss


def _chunk_gradients(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    batch: ClientBatch,
    clients: Tensor,
    rows: Tensor,
    losses: Tensor,
) -> None:
    """Write the gradients and losses of some clients into their rows, by one vmap over them."""
    indices = pad_sequence([batch.indices[i] for i in clients.tolist()], batch_first=True)
    sizes = torch.tensor([len(batch.indices[i]) for i in clients.tolist()], device=indices.device)
    mask = torch.arange(indices.shape[1], device=indices.device) < sizes[:, None]
    indices = torch.where(mask, indices, indices[:, :1])  # padded with a client's own sample: 0 * NaN is NaN
    x, y = batch.samples.gather(indices)
    gradients, values = vmap(grad_and_value(_masked_loss(model)), in_dims=(None, 0, 0, 0))(
        parameters, x, y, mask.to(rows.dtype) / sizes[:, None]
    )
    clients = clients.to(rows.device)
    losses[clients] = values
    start = 0
    for gradient in gradients.values():
        flat = gradient.reshape(len(clients), -1)
        rows[clients, start : start + flat.shape[1]] = flat
        start += flat.shape[1]
