"""What a rule or an attack takes over from one round into the next, clients' numbers among it."""

from typing import Any

import pytorch_lightning as pl

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.updates.updates import Updates


class Memory(pl.Callback):
    """What a rule or an attack remembers: at the end of a round what its last call left, saved with the run.

    It stands before `Aggregator` or `Adversary` among the bases.  A call leaves a dict in ``_last``; ``_remembered`` is
    that of the last round, ``{}`` in the first.
    """

    _remembered: dict[str, Any]
    _last: dict[str, Any]

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        """Begin with nothing, whether or not the class's own constructor calls ours."""
        made = super().__new__(cls)
        made._remembered, made._last = {}, {}
        return made

    def on_train_batch_end(self, *args: Any) -> None:
        """Remember what this round's last call left.

        Raises:
            SettingError: If that is no dict.
        """
        if not isinstance(self._last, dict):
            raise SettingError(
                f"{type(self).__name__} needs a dict in self._last, got {type(self._last).__name__}; name what it "
                f'remembers: self._last = {{"mean": ...}}.'
            )
        self._remembered = self._last

    def state_dict(self) -> dict[str, Any]:
        """What is remembered."""
        return self._remembered

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._remembered = self._last = state_dict


class Remembering(Memory, Aggregator):
    """A rule that, at the end of a round, remembers what its last call left, and saves it with the run."""


class RememberingWrapper(Memory, Wrapper):
    """A wrapper that at the end of a round remembers what its last call left, as `Remembering` does."""

    remembers = True

    def __init__(self, rule: Aggregator):
        super().__init__(rule=rule)

    def on_train_batch_end(self, *args: Any) -> None:
        """Remember what this round's last call left, and tell the rule."""
        Memory.on_train_batch_end(self, *args)
        Wrapper.on_train_batch_end(self, *args)

    def state_dict(self) -> dict[str, Any]:
        """What both remember."""
        return {"own": Memory.state_dict(self), "rule": Wrapper.state_dict(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        Memory.load_state_dict(self, state_dict["own"])
        Wrapper.load_state_dict(self, state_dict["rule"])


def clients_of(updates: Updates, rule: str) -> list[int]:
    """Tell whose the rows are.

    Raises:
        SettingError: If they are not single clients'.
    """
    if updates.ids is None:
        raise SettingError(
            f"{rule} remembers clients and needs their numbers, got rows that are not single clients; use it by "
            f"itself, without buckets."
        )
    return [int(client) for client in updates.ids]
