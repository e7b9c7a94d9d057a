"""The BOBA paper's rate: constant, then a fixed factor every few rounds.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932, Table 6 (T_s; T_i; alpha).
"""

from collections.abc import Callable
from typing import Annotated

from annotated_types import Gt, Le

from lightning_fl.ranges import PositiveInt, checked


@checked
def late_decay(
    start: PositiveInt, interval: PositiveInt, factor: Annotated[float, Gt(0), Le(1)]
) -> Callable[[int], float]:
    """Make a rate multiplier for ``torch.optim.lr_scheduler.LambdaLR``.

    After each finished round t (from 1) with t >= start and t divisible by interval, the rate is multiplied by factor.

    Args:
        start: T_s, in rounds.
        interval: T_i, in rounds.
        factor: alpha.

    Returns:
        The multiplier as a function of how many rounds are finished.

    Raises:
        SettingError: If a setting is out of range.

    >>> rate = late_decay(start=100, interval=10, factor=0.95)
    >>> rate(99), rate(100), round(rate(110), 4)
    (1.0, 0.95, 0.9025)
    """
    before = (start - 1) // interval
    return lambda finished: factor ** max(0, finished // interval - before)
