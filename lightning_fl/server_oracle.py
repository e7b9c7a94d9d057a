"""The server as a rule sees it: computations on its model and its few labelled samples."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.round import Round


class ServerOracle(ABC):
    """The server's own computations at this round's parameters, each made when first asked for.

    `lightning_fl.model_oracle.ModelOracle` makes them from a model.
    """

    round: Round
    """Which round it is."""

    _drawer = "server"

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """The number c of classes."""

    @property
    @abstractmethod
    def upload_rate(self) -> float:
        """The rate eta at which a client's model w_i makes its upload (w - w_i) / eta."""

    @property
    @abstractmethod
    def class_updates(self) -> Float[Tensor, "c d"]:
        """One update per class, by the same process as the clients' (BOBA's gamma_z).

        Raises:
            SettingError: If the server has no data.
        """

    @property
    @abstractmethod
    def update(self) -> Float[Tensor, " d"]:
        """The update of one virtual client that holds all of the server's samples.

        Raises:
            SettingError: If the server has no data.
        """

    @property
    @abstractmethod
    def parameters(self) -> Float[Tensor, " d"]:
        """The global parameters w, flat."""

    @abstractmethod
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

    @abstractmethod
    def gradient_after(self, update: Float[Tensor, " d"], learning_rate: float) -> Float[Tensor, " d"]:
        """Compute the gradient of the mean loss over the server's samples at w - learning_rate * update.

        Raises:
            SettingError: If the server has no data.
        """

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


class GivenServer(ServerOracle):
    """A server without a model, for a rule that is called on plain tensors: it has what it was given.

    Args:
        vectors: (c, d) class updates or the (d,) server update.  None: neither.
        seed: Seed of what the rule draws.
    """

    def __init__(self, vectors: Tensor | None, seed: int = 0):
        self.round = Round(0, 1.0, seed)
        self._vectors = vectors

    def _given(self, what: str, ndim: int) -> Tensor:
        if self._vectors is None or self._vectors.ndim != ndim:
            got = "none" if self._vectors is None else f"shape {tuple(self._vectors.shape)}"
            raise SettingError(f"the rule needs {what} as its second argument, got {got}; write rule(updates, server).")
        return self._vectors

    @property
    def n_classes(self) -> int:
        """As many as there are class updates; otherwise 1."""
        return len(self._vectors) if self._vectors is not None and self._vectors.ndim == 2 else 1

    @property
    def upload_rate(self) -> float:
        """1: an update is the difference of two models."""
        return self.round.learning_rate

    @property
    def class_updates(self) -> Float[Tensor, "c d"]:
        """What was given."""
        return self._given("the server's class updates (c, d)", 2)

    @property
    def update(self) -> Float[Tensor, " d"]:
        """What was given."""
        return self._given("the server's update (d,)", 1)

    @property
    def parameters(self) -> Float[Tensor, " d"]:
        """Not known."""
        raise SettingError("the rule needs the global model, got plain tensors; give it a ServerOracle.")

    def losses_after(self, updates: Float[Tensor, "k d"]) -> Float[Tensor, " k"]:
        """Not known."""
        raise SettingError("the rule needs losses on the server's data, got plain tensors; give it a ServerOracle.")

    def gradient_after(self, update: Float[Tensor, " d"], learning_rate: float) -> Float[Tensor, " d"]:
        """Not known."""
        raise SettingError("the rule needs gradients on the server's data, got plain tensors; give it a ServerOracle.")
