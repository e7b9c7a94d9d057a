"""Rates that fall as a power of the round: RAGA's, Fed-NGA's and RSA's."""

from collections.abc import Callable

from lightning_fl.ranges import NonNegativeFloat, PositiveFloat, checked


@checked
def power_decay(shift: PositiveFloat, rate: NonNegativeFloat, exponent: NonNegativeFloat) -> Callable[[int], float]:
    """Make a rate multiplier for ``torch.optim.lr_scheduler.LambdaLR``: (shift + rate * finished)^(-exponent).

    Args:
        shift: The first round's multiplier is shift^(-exponent).
        rate: Growth of the base per round.
        exponent: 0 is constant.

    Returns:
        The multiplier as a function of how many rounds are finished: k - 1 in round k from 1.

    Raises:
        SettingError: If a setting is out of range.

    >>> [round(power_decay(shift=1.0, rate=1.0, exponent=0.5)(finished), 4) for finished in (0, 1, 3)]
    [1.0, 0.7071, 0.5]
    """
    return lambda finished: (shift + rate * finished) ** -exponent
