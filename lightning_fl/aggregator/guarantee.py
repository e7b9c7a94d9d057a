"""Where a run leaves what is proven of its rule."""

from numbers import Integral

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.federation import Federation
from lightning_fl.text import many


def not_guaranteed(rule: Aggregator, federation: Federation, n_classes: int, rounds: int = 0) -> str | None:
    """Say what is not guaranteed in a run: more clients attack than the rule tolerates, or it is beyond its bound.

    Args:
        rule: The rule.
        federation: The clients; where rounds differ, the worst one counts.
        n_classes: c.
        rounds: How many rounds the run has.
    """
    drawn = federation.counts(rounds)
    when = " in some round" * federation.varies

    def attack(b: int) -> str:
        return f"{many(b, 'client')} attack{'s' * (b == 1)}"

    most = max(b for _, b in drawn)
    if fewer := told_fewer(rule, most, f"{attack(most)}{when}"):
        return fewer
    for h, b in sorted(drawn, key=lambda pair: pair[0] - pair[1]):
        asked, inner, n, spoilt = "", rule, h + b, b
        while 2 * spoilt < n and isinstance(inner, Wrapper):
            n, spoilt, inner = inner.n_mixed(n), inner.n_spoilt(spoilt), inner.rule
            asked = f", and may spoil {min(spoilt, n)} of {n} rows that {type(inner).__name__} sees"
        if 2 * spoilt >= n and not rule.needs_server:
            return f"no guarantee: {attack(b)}, of {h + b}{when}{asked}"
    return rule.guarantee(min(map(sum, drawn)), n_classes)


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
