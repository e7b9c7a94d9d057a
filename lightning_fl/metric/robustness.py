"""How far a round's update was from the honest clients' mean, in the terms of robustness theory.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772, Definition 2.
"""

from collections.abc import Sequence
from math import inf, isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.updates.deviation import deviation
from lightning_fl.updates.updates import Updates


def measured_kappa(
    updates: Updates, update: Float[Tensor, " d"], h: int, quick: Sequence[float] | None = None
) -> float:
    """Compute ||update - mean||^2 / ((1/h) sum_i ||x_i - mean||^2) over the h honest rows, mean their mean.

    A rule that is (f, kappa)-robust never exceeds its kappa, which `lightning_fl.theory.robustness` has.

    Args:
        updates: The round, honest rows first.
        update: What the rule made of it.
        h: How many rows are honest, from 1 to n.
        quick: What `quick_deviation` has found.  None: ask it.

    Returns:
        The ratio, at least 0.  For honest rows that are equal up to rounding: 0 if the update equals them, else inf.
        Honest rows that are not finite are left out; inf where there are no others.

    Raises:
        SettingError: If h is out of range.

    Note:
        The mean is the unweighted one, as in the theory: averaging clients by their samples deviates from it
        even without attack.

    >>> rows = Updates(torch.tensor([[0.0], [2.0], [90.0]]))
    >>> measured_kappa(rows, torch.tensor([2.0]), h=2)
    1.0
    """
    if not 1 <= h <= updates.n:
        raise SettingError(f"a measured kappa needs 1 <= h <= n honest rows, got h={h} and n={updates.n}.")
    error, variance, square = deviation(updates, update, h, quick)
    rounding = torch.finfo(update.dtype).eps ** 2 * square
    if variance <= rounding:
        return 0.0 if error <= 64 * rounding else inf
    kappa = error / variance
    return kappa if isfinite(kappa) else inf
