"""A rate that falls to nothing over the run, along half a cosine.

Ilya Loshchilov, Frank Hutter. SGDR: Stochastic Gradient Descent with Warm Restarts. ICLR 2017. arXiv:1608.03983, eq. 5
without restarts.
"""

from collections.abc import Callable
from math import cos, pi

from lightning_fl.ranges import PositiveInt, checked


@checked
def cosine_decay(rounds: PositiveInt) -> Callable[[int], float]:
    """Make a rate multiplier for ``torch.optim.lr_scheduler.LambdaLR``: (1 + cos(pi t / rounds)) / 2.

    Args:
        rounds: T.

    Returns:
        The multiplier as a function of how many rounds t are finished; from T on it stays that of the last round.

    Raises:
        SettingError: If rounds is out of range.

    >>> rate = cosine_decay(rounds=4)
    >>> [round(rate(finished), 4) for finished in (0, 1, 2, 3, 4, 9)]
    [1.0, 0.8536, 0.5, 0.1464, 0.1464, 0.1464]
    """
    return lambda finished: (1 + cos(pi * min(finished, rounds - 1) / rounds)) / 2
