"""What the server can compute by itself, from its few labelled samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from lightning_fl.client.base import Client, all_at_once, default_client_chunk
from lightning_fl.dropout import KeyedDropout
from lightning_fl.errors import SettingError
from lightning_fl.loss import mean_loss
from lightning_fl.parallel import shared
from lightning_fl.parameters import flatten, trainable, unflatten
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch


@dataclass
class ServerOracle:
    """The server's own computations at this round's parameters; each is made when first asked for.

    Args:
        model: The global model.
        client: What clients do; the server's virtual clients do the same.
        classes: One virtual client per class; empty when the server has no data.
        round: Which round it is.
    """

    model: nn.Module
    client: Client
    classes: ClientBatch
    round: Round
    _drawer: str = field(default="server", init=False, repr=False)

    @cached_property
    def class_updates(self) -> Float[Tensor, "c d"]:
        """One update per class, by the same process as the clients' (BOBA's gamma_z).

        Raises:
            SettingError: If the server has no data.
        """
        self._need_data()
        return self.client.updates(self.model, self.classes, self.round).updates

    @cached_property
    def update(self) -> Float[Tensor, " d"]:
        """The update of one virtual client that holds all of the server's samples.

        Raises:
            SettingError: If the server has no data.
        """
        together = ClientBatch(self.classes.samples, [self._all_samples()], [-1 - len(self.classes)])
        return self.client.updates(self.model, together, self.round).updates[0]

    @cached_property
    def parameters(self) -> Float[Tensor, " d"]:
        """The global parameters w, flat."""
        return flatten(trainable(self.model).values())

    def losses_after(self, updates: Float[Tensor, "k d"]) -> Float[Tensor, " k"]:
        """Compute the mean loss on all of the server's samples after each update alone, at w - eta u_i.

        Nothing is dropped out, as in evaluation.

        Args:
            updates: One candidate per row.

        Returns:
            The losses; inf where a loss is not a number.

        Raises:
            SettingError: If the server has no data.
        """
        x, y = self.classes.samples.gather(self._all_samples())
        like = trainable(self.model)

        def loss(vector: Tensor) -> Tensor:
            parameters = dict(zip(like, unflatten(vector, list(like.values())), strict=True))
            with KeyedDropout(None):
                return mean_loss(self.model, functional_call(self.model, parameters, (x,)), y)

        def after(rows: Tensor) -> Tensor:
            moves = self.round.learning_rate * rows
            return torch.sub(self.parameters, moves, out=moves)

        def losses(candidates: Tensor) -> Tensor:
            return torch.cat([vmap(loss)(after(rows)) for rows in candidates.split(chunk)])

        chunk = default_client_chunk(self.model, updates.shape[1], updates.device)
        with torch.no_grad(), all_at_once(self.model, "choose a rule that asks for no losses, or another model"):
            return shared(losses, updates).nan_to_num(nan=torch.inf, posinf=torch.inf)

    def gradient_after(self, update: Float[Tensor, " d"], learning_rate: float) -> Float[Tensor, " d"]:
        """Compute the gradient of the mean loss over the server's samples at w - learning_rate * update.

        Raises:
            SettingError: If the server has no data.
        """
        x, y = self.classes.samples.gather(self._all_samples())
        like = trainable(self.model)
        vector = (self.parameters - learning_rate * update).requires_grad_()
        with torch.enable_grad(), KeyedDropout(None):
            parameters = dict(zip(like, unflatten(vector, list(like.values())), strict=True))
            loss = mean_loss(self.model, functional_call(self.model, parameters, (x,)), y)
            return torch.autograd.grad(loss, vector)[0]

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for the rule's draws in this round."""
        return self.round.generator(self._drawer, purpose)

    def derive_seed(self, purpose: str) -> int:
        """The seed of `generator`."""
        return self.round.derive_seed(self._drawer, purpose)

    @contextmanager
    def guessed(self) -> Iterator[None]:
        """Draw differently inside: whoever knows the rule can ask it, but cannot predict what the server will draw.

        The mini-batches of the server's virtual clients, where ``client.batch_size`` is set, are known.
        """
        self._drawer = "guess"
        try:
            yield
        finally:
            self._drawer = "server"

    def _all_samples(self) -> Tensor:
        self._need_data()
        return torch.cat(list(self.classes.indices))

    def _need_data(self) -> None:
        if not len(self.classes):
            raise SettingError("this rule needs server data, got none; set data.server_samples to at least 1.")
