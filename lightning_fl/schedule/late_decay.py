"""The BOBA paper's rate: constant, then a fixed factor every few rounds.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932, Table 6 (T_s; T_i; alpha).
"""

from collections.abc import Callable

from lightning_fl.errors import SettingError


def late_decay(start: int, interval: int, factor: float) -> Callable[[int], float]:
    """Make a rate multiplier for ``torch.optim.lr_scheduler.LambdaLR``.

    After each finished round t (from 1) with t >= start and t divisible by interval, the rate is multiplied by factor.

    Args:
        start: T_s, at least 1, in rounds.
        interval: T_i, at least 1, in rounds.
        factor: alpha, in (0, 1].

    Returns:
        The multiplier as a function of how many rounds are finished.

    Raises:
        SettingError: If a setting is out of range.

    >>> rate = late_decay(start=100, interval=10, factor=0.95)
    >>> rate(99), rate(100), round(rate(110), 4)
    (1.0, 0.95, 0.9025)
    """
    if start < 1 or interval < 1 or not 0 < factor <= 1:
        raise SettingError(
            f"late_decay needs start >= 1, interval >= 1 and 0 < factor <= 1, got {start}, {interval} and {factor}."
        )
    before = (start - 1) // interval
    return lambda finished: factor ** max(0, finished // interval - before)
