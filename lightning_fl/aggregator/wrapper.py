"""A rule built on another rule."""

from operator import attrgetter
from typing import Any

import pytorch_lightning as pl

from lightning_fl.aggregator.base import Aggregator, Clients
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

    def on_train_batch_end(self, *args: Any) -> None:
        """Tell the rule that the round is over."""
        self.rule.on_train_batch_end(*args)

    def state_dict(self) -> dict[str, Any]:
        """What the rule remembers."""
        return self.rule.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the rule back what it remembered."""
        self.rule.load_state_dict(state_dict)


# What the wrapped rule declares holds of the rule built on it, which may declare something else; whether equal rows are
# the result, and whether rows count at all, each says of itself.
for _law, _declared in vars(Aggregator).items():
    if isinstance(_declared, property) and _law not in ("exact", "reads_updates"):
        setattr(Wrapper, _law, property(attrgetter(f"rule.{_law}"), doc=_declared.__doc__))


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
