"""Local steps of any optimizer of torch.optim before an upload."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

from lightning_fl.client.base import ClientResult, LocalSteps, Sampling, minibatches
from lightning_fl.errors import SettingError
from lightning_fl.network.parameters import flatten, trainable, unflatten
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch
from lightning_fl.text import meant, said


class LocalOptimizer(LocalSteps):
    """Take K steps of an optimizer from the global model and upload (w_0 - w_K) / eta, eta the server's rate.

    Each client's optimizer begins anew in each round: nobody keeps its moments, and rounds need them, such as 2 n d
    numbers for Adam, beside the updates.  SGD with momentum, decay and clipping is `LocalSgd`, which is faster.

    Args:
        optimizer: A name of torch.optim whose steps need gradients alone.
        options: Further settings of it, such as ``{betas: [0.9, 0.99]}``.  None: torch's.
        steps: K, at least 1.
        epochs: E, in place of steps: each client goes E times through all its samples.  None: steps.
        batch_size: Samples of a mini-batch, drawn anew in each step; a client with fewer uses all.  None: all.
        learning_rate: Rate of the local steps, above 0.  None: the server's rate of the round.
        sampling: How mini-batches are drawn; see `minibatches`.
        client_chunk: See `Client`.

    Raises:
        SettingError: If torch has no such optimizer, or it does not take these settings.

    Note:
        A server that steps by SGD moves to the aggregate of the local models, whatever its rate: unlike that of
        `LocalSgd`, the local rate of an optimizer that scales its steps itself says nothing about the server's.
    """

    def __init__(
        self,
        optimizer: str = "Adam",
        options: Mapping[str, Any] | None = None,
        steps: PositiveInt = 5,
        epochs: PositiveInt | None = None,
        batch_size: PositiveInt | None = None,
        learning_rate: PositiveFloat | None = 0.001,
        sampling: Sampling | None = None,
        client_chunk: PositiveInt | None = None,
    ):
        super().__init__(client_chunk)
        self.optimizer = optimizer
        self.options = dict(options or {})
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sampling: Sampling | None = sampling
        self.check_epochs()
        self._try([(2, 2)], "step")

    def check_epochs(self) -> None:
        """Refuse epochs beside drawn mini-batches; see the base class."""
        if self.epochs is not None and self.sampling is not None:
            raise SettingError(
                f"local_optimizer goes through whole epochs, got sampling={self.sampling}; set it to null."
            )

    @override
    def check_model(self, model: nn.Module) -> None:
        self._try([value.shape for value in trainable(model).values()], f"train {type(model).__name__}")

    def _try(self, shapes: Iterable[Sequence[int]], what: str) -> None:
        """Take a step with tensors of these shapes, to see now what would go wrong in the first round."""
        kind = getattr(torch.optim, self.optimizer, None)
        if not (isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer):
            hint = meant(self.optimizer, torch.optim.__all__)
            raise SettingError(
                f"local_optimizer needs a name of torch.optim, such as AdamW, got {self.optimizer!r}{hint}"
            )
        if "lr" in self.options:
            raise SettingError(
                f"local_optimizer has one rate, got lr={self.options['lr']} among its options; set "
                f"client.learning_rate."
            )
        some = [torch.zeros(tuple(shape)) for shape in shapes]
        for each in some:
            each.grad = torch.ones_like(each)
        try:
            self._made(some, self.learning_rate or 0.1).step()
        except Exception as error:
            given = "".join(f", {name}={value}" for name, value in self.options.items())
            raise SettingError(
                f"torch.optim.{self.optimizer} cannot {what}, got lr{given}: {said(error)}; correct "
                f"client.options, or choose a client.optimizer that needs gradients alone, such as AdamW or SGD."
            ) from error

    def _made(self, parameters: list[Tensor], rate: float) -> Optimizer:
        made: Optimizer = getattr(torch.optim, self.optimizer)(parameters, **({"lr": rate} | self.options))
        return made

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's local steps; see the base class."""
        rate, like = self.step_rate(this_round), [*trainable(model).values()]
        start = flatten(like)
        at = start.repeat(len(batch), 1)
        parts = [unflatten(own, like) for own in at]
        optimizers = [self._made(own, rate) for own in parts]
        places = {client: i for i, client in enumerate(batch.ids)}
        gradients = torch.empty_like(at) if out is None else out
        losses, count = start.new_empty(0), 0
        drawn = minibatches(batch, self.batch_size, this_round, self.steps, self.sampling, self.epochs)
        for k, some in enumerate(drawn):
            rows = [places[client] for client in some.ids]
            found = self.gradients(model, some, gradients[: len(rows)], at[rows] if k else None)
            for i, gradient in zip(rows, found.updates, strict=True):
                for part, of_part in zip(parts[i], unflatten(gradient, like), strict=True):
                    part.grad = of_part
                optimizers[i].step()
            losses = found.losses if k == 0 else losses
            count += sum(some.sizes)
        moved, unit = torch.sub(start, at, out=gradients), this_round.learning_rate
        return ClientResult(moved.div_(unit) if unit else moved.zero_(), losses, count)  # 0: the server stays
