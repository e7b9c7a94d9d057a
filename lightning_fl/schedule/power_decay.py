"""Rates that fall as a power of the round: RAGA's, Fed-NGA's and RSA's."""

from collections.abc import Callable
from math import inf

from lightning_fl.errors import SettingError


def power_decay(shift: float, rate: float, exponent: float) -> Callable[[int], float]:
    """Make a rate multiplier for ``torch.optim.lr_scheduler.LambdaLR``: (shift + rate * finished)^(-exponent).

    Args:
        shift: Above 0; the first round's multiplier is shift^(-exponent).
        rate: At least 0.
        exponent: At least 0; 0 is constant.

    Returns:
        The multiplier as a function of how many rounds are finished: k - 1 in round k from 1.

    Raises:
        SettingError: If a setting is out of range.

    >>> [round(power_decay(shift=1.0, rate=1.0, exponent=0.5)(finished), 4) for finished in (0, 1, 3)]
    [1.0, 0.7071, 0.5]
    """
    if not (0 < shift < inf and 0 <= rate < inf and 0 <= exponent < inf):
        raise SettingError(
            f"power_decay needs finite shift > 0, rate >= 0 and exponent >= 0, got {shift}, {rate} and {exponent}."
        )
    return lambda finished: (shift + rate * finished) ** -exponent
