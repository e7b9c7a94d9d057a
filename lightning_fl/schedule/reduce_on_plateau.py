"""A rate that falls where the honest clients' mean loss no longer does."""

from typing import Annotated

from annotated_types import Ge, Lt
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lightning_fl.ranges import Fraction, NonNegativeFloat, NonNegativeInt, checked


@checked
def reduce_on_plateau(
    optimizer: Optimizer,
    factor: Fraction = 0.1,
    patience: NonNegativeInt = 10,
    threshold: Annotated[float, Ge(0), Lt(1)] = 1e-4,
    min_lr: NonNegativeFloat = 0.0,
) -> ReduceLROnPlateau:
    """Make torch's schedule, after it has checked its settings, which torch does not.

    Args:
        optimizer: The server's.
        factor: What the rate is multiplied by.
        patience: Rounds without improvement before that.
        threshold: Share of the lowest loss by which it must fall.
        min_lr: The rate does not fall below it.

    Raises:
        SettingError: If a setting is out of range.
    """
    return ReduceLROnPlateau(optimizer, factor=factor, patience=patience, threshold=threshold, min_lr=min_lr)
