"""The server's own computations on its model and its few labelled samples."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap
from typing_extensions import override

from lightning_fl.client.base import Client, computed_at_once, default_client_chunk
from lightning_fl.errors import SettingError
from lightning_fl.loss.base import loss_of
from lightning_fl.network.dropout import KeyedDropout
from lightning_fl.network.parameters import call_at, flatten, trainable, unflatten
from lightning_fl.network.statistics import mixes
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.exchange import shared


@dataclass
class ModelOracle(ServerOracle):
    """The server's own computations at this round's parameters; each is made when first asked for.

    Args:
        model: The global model.
        client: The clients' work, which the server's virtual clients do, too.
        classes: One virtual client per class; empty when the server has no data.
        round: The current round.
    """

    model: nn.Module
    client: Client
    classes: ClientBatch
    round: Round

    @property
    @override
    def n_classes(self) -> int:
        return self.classes.samples.n_classes

    @property
    @override
    def upload_rate(self) -> float:
        return self.client.upload_rate(self.round)

    @cached_property
    @override
    def class_updates(self) -> Float[Tensor, "c d"]:
        self._need_data()
        return self.client.updates(self.model, self.classes, self.round).updates

    @cached_property
    @override
    def update(self) -> Float[Tensor, " d"]:
        together = ClientBatch(self.classes.samples, [self._all_samples()], [-1 - len(self.classes)])
        return self.client.updates(self.model, together, self.round).updates[0]

    @cached_property
    @override
    def parameters(self) -> Float[Tensor, " d"]:
        return flatten(trainable(self.model).values())

    @override
    def losses_after(self, updates: Float[Tensor, "k d"]) -> Float[Tensor, " k"]:
        x, y = self.classes.samples.gather(self._all_samples())
        like = trainable(self.model)

        def loss(vector: Tensor) -> Tensor:
            parameters = dict(zip(like, unflatten(vector, list(like.values())), strict=True))
            with KeyedDropout(None):
                found: Tensor = call_at(parameters, loss_of, self.model, x, y)
                return found

        def after(rows: Tensor) -> Tensor:
            moves = self.round.learning_rate * rows
            return torch.sub(self.parameters, moves, out=moves)

        def losses(candidates: Tensor) -> Tensor:
            return torch.cat([each(after(rows)) for rows in candidates.split(chunk)])

        chunk = default_client_chunk(self.model, updates.shape[1], updates.device)
        together = not mixes(self.model) and computed_at_once(self.model, self.classes.samples)
        each = vmap(loss) if together else lambda rows: torch.stack([loss(row) for row in rows])
        with torch.no_grad():
            return shared(losses, updates).nan_to_num(nan=torch.inf, posinf=torch.inf)

    @override
    def gradient_after(self, update: Float[Tensor, " d"], learning_rate: float) -> Float[Tensor, " d"]:
        x, y = self.classes.samples.gather(self._all_samples())
        like = trainable(self.model)
        vector = (self.parameters - learning_rate * update).requires_grad_()
        with torch.enable_grad(), KeyedDropout(None):
            parameters = dict(zip(like, unflatten(vector, list(like.values())), strict=True))
            loss = call_at(parameters, loss_of, self.model, x, y)
            return torch.autograd.grad(loss, vector)[0]

    def _all_samples(self) -> Tensor:
        self._need_data()
        return torch.cat(list(self.classes.indices))

    def _need_data(self) -> None:
        if not len(self.classes):
            raise SettingError("this rule needs server data, got none; set data.server_samples to at least 1.")
