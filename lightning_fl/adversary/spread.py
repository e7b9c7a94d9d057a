"""The spread of the honest updates, in which attacks hide."""

from jaxtyping import Float
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.updates.updates import Updates


def mean_and_std(honest: Float[Tensor, "h d"], attack: str) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Compute mean and sample standard deviation (divisor h - 1) of each coordinate, without data weights.

    Args:
        honest: One honest update per row.
        attack: Who asks, for the error.

    Returns:
        Both vectors.

    Raises:
        SettingError: If there are fewer than 2 rows.
    """
    return spread_of(Updates(honest), attack)


def spread_of(honest: Updates, attack: str) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Do the same with the updates of a round, which cache the result; see `mean_and_std`."""
    check_spread(attack, honest.n)
    return honest.mean_and_std


def check_spread(attack: str, h: int) -> None:
    """Check that there is a standard deviation.

    Raises:
        SettingError: If there are fewer than 2 honest updates.
    """
    if h < 2:
        raise SettingError(f"{attack} needs at least 2 honest updates for a spread, got {h}; add clients.")
