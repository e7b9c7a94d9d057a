"""Where a run leaves what is proven of its rule."""

from numbers import Integral

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.federation import Federation
from lightning_fl.text import many


def not_guaranteed(rule: Aggregator, federation: Federation, n_classes: int) -> str | None:
    """Say what is not guaranteed in a run: more clients attack than the rule tolerates, or it is beyond its bound."""
    b = federation.present[1]
    attack = f"{many(b, 'client')} attack{'s' * (b == 1)}"
    if fewer := told_fewer(rule, b, attack):
        return fewer
    if 2 * b >= federation.n and not rule.needs_server:
        return f"no guarantee: {attack}, of {federation.n}"
    return rule.guarantee(federation.n, n_classes)


def tolerated(rule: Aggregator) -> int | None:
    """Tell a rule's f, or that of the rule inside it; None if neither has one, or what it calls f is no number."""
    while not hasattr(rule, "f") and isinstance(rule, Wrapper):
        rule = rule.rule
    f = getattr(rule, "f", None)
    return int(f) if isinstance(f, Integral) else None


def told_fewer(rule: Aggregator, f: int, why: str | None = None) -> str | None:
    """Say that nothing is proven of a rule that is told fewer Byzantine rows than there may be.

    Args:
        rule: The rule.
        f: How many there may be.
        why: Where they come from.  None: from what asks it, which is told so.
    """
    told = tolerated(rule)
    if told is None or told >= f:
        return None
    return f"no guarantee: {why or f'asks for f = {f}'}, the rule tolerates f = {told}"
