"""A rule built on another rule."""

from collections.abc import Collection
from typing import Any

import pytorch_lightning as pl

from lightning_fl.aggregator.base import Aggregator, Clients, Motion, ServerNeed
from lightning_fl.errors import SettingError


class Wrapper(Aggregator):
    """A rule built on another rule; it forwards the end of a round and the checkpoint state.

    Its guarantee is the other rule's; no kappa is known of it.

    Args:
        rule: The rule to wrap.  Of Lightning's hooks it may define ``on_train_batch_end``, ``state_dict`` and
            ``load_state_dict`` only.

    Raises:
        SettingError: If it has another hook, which nobody would call.
    """

    def __init__(self, rule: Aggregator):
        check_hooks(rule, type(self).__name__)
        self.rule = rule

    def n_mixed(self, n: int) -> int:
        """How many rows the wrapped rule sees of n updates."""
        return n

    def n_spoilt(self, b: int) -> int:
        """How many of those rows b Byzantine updates may spoil at most."""
        return b

    def least_n(self, n_classes: int) -> int:
        """Say how many updates both rules need; see the base class."""
        return max(super().least_n(n_classes), self.rule.least_n(n_classes))

    def check(self, n: int, n_classes: int) -> None:
        """Check the wrapping and the wrapped rule; see the base class."""
        super().check(n, n_classes)
        self.rule.check(self.n_mixed(n), n_classes)

    def check_clients(self, federation: Clients) -> None:
        """Ask the rule; see the base class."""
        self.rule.check_clients(federation)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Pass on what the wrapped rule says; see the base class."""
        return self.rule.guarantee(self.n_mixed(n), n_classes)

    @property
    def sums(self) -> bool:
        """Whether the wrapped rule does; see the base class."""
        return self.rule.sums

    @property
    def remembers(self) -> bool:
        """Whether the wrapped rule does; see the base class."""
        return self.rule.remembers

    @property
    def needs_client(self) -> int | None:
        """Which client the wrapped rule needs; see the base class."""
        return self.rule.needs_client

    @property
    def robust(self) -> bool:
        """Whether the wrapped rule is; see the base class, as for the other laws."""
        return self.rule.robust

    @property
    def order_matters(self) -> bool:
        """Whether it does to the wrapped rule."""
        return self.rule.order_matters

    @property
    def moves_with(self) -> Collection[Motion]:
        """What the wrapped rule moves with."""
        return self.rule.moves_with

    @property
    def searches(self) -> bool:
        """Whether the wrapped rule does."""
        return self.rule.searches

    @property
    def needs_ids(self) -> bool:
        """Whether the wrapped rule must know which client sent which row."""
        return self.rule.needs_ids

    @property
    def recalls_absent(self) -> bool:
        """Whether absent clients count to the wrapped rule; see the base class."""
        return self.rule.recalls_absent

    @property
    def needs_model(self) -> bool:
        """Whether the wrapped rule compares with the model; see the base class."""
        return self.rule.needs_model

    @property
    def needs_layout(self) -> bool:
        """Whether the wrapped rule goes by the model's tensors; see the base class."""
        return self.rule.needs_layout

    @property
    def needs_server(self) -> ServerNeed | None:
        """What the wrapped rule needs; see the base class."""
        return self.rule.needs_server

    def on_train_batch_end(self, *args: Any) -> None:
        """Tell the rule that the round is over."""
        self.rule.on_train_batch_end(*args)

    def state_dict(self) -> dict[str, Any]:
        """What the rule remembers."""
        return self.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the rule back what it remembered."""
        self.rule.load_state_dict(state_dict)


def check_hooks(rule: Aggregator, asker: str) -> None:
    """Check that a rule has only those of Lightning's hooks that its caller forwards.

    Args:
        rule: The rule.
        asker: Who asks it, for the error.

    Raises:
        SettingError: If it has another hook, which nobody would call.
    """
    for name in other_hooks(rule):
        raise SettingError(
            f"{asker} does not call {name} of its rule, got {type(rule).__name__} with it; use that rule by itself."
        )


def other_hooks(rule: Aggregator) -> list[str]:
    """List the hooks of Lightning's that a rule has beside those by which it remembers."""
    passed, mine = {"on_train_batch_end", "state_dict", "load_state_dict"}, type(rule)
    hooks = vars(pl.Callback).items()
    return [name for name, usual in hooks if name[0] != "_" and name not in passed and getattr(mine, name) is not usual]
