"""A rate that falls where the honest clients' mean loss no longer does."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lightning_fl.errors import SettingError, check_whole


def reduce_on_plateau(
    optimizer: Optimizer, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, min_lr: float = 0.0
) -> ReduceLROnPlateau:
    """Make torch's schedule, after it has checked its settings, which torch does not.

    Args:
        optimizer: The server's.
        factor: What the rate is multiplied by, in (0, 1).
        patience: Rounds without improvement before that, at least 0.
        threshold: Share of the lowest loss by which it must fall, in [0, 1).
        min_lr: The rate does not fall below it, at least 0.

    Raises:
        SettingError: If a setting is out of range.
    """
    check_whole("patience", patience, 0)
    if not (0 < factor < 1 and 0 <= threshold < 1 and 0 <= min_lr < float("inf")):
        raise SettingError(
            f"reduce_on_plateau needs 0 < factor < 1, 0 <= threshold < 1 and finite min_lr >= 0, got factor={factor}, "
            f"threshold={threshold} and min_lr={min_lr}."
        )
    return ReduceLROnPlateau(optimizer, factor=factor, patience=patience, threshold=threshold, min_lr=min_lr)
