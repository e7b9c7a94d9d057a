"""How far a robust rule may be from the honest mean: the robustness coefficients kappa.

Youssef Allouah, Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Rafael Pinot, John Stephan. Fixing by Mixing: A
Recipe for Optimal Byzantine ML under Heterogeneity. AISTATS 2023. arXiv:2302.01772.

A rule F is (f, kappa)-robust if ||F(x) - mean_S||^2 <= kappa / |S| sum_{i in S} ||x_i - mean_S||^2 for all n rows x and
every S of n - f of them.  This holds for fewer than f Byzantine rows, too: mean_S averages the means of its subsets.
"""

from lightning_fl.errors import SettingError
from lightning_fl.theory.base import Bound, check_numbers, not_guaranteed


def least_kappa(n: int, f: int, told: int | None = None) -> Bound:
    """Compute the kappa that no rule can be below, r = f / (n - 2f); told another number, told / (n - f - told).

    A rule that withstands any ``told`` rows answers what n - ``told`` equal rows say, even where the f Byzantine rows
    join n - f - ``told`` of the honest ones; the other honest rows, ``told`` of them, are lost.  Of a rule told fewer
    than f nothing more is known.

    Args:
        n: Rows.
        f: Byzantine rows, at least 0; all bounds here are not guaranteed unless n > 2f.
        told: How many the rule was told to tolerate, at least 0; no bound unless n > f + told.  None: f.

    Raises:
        SettingError: If n < 1, f < 0 or told < 0.

    >>> print(least_kappa(7, 2), least_kappa(7, 2, told=4))
    0.666667 4
    """
    if told is None:
        return _need_majority(n, f) or Bound(_r(n, f))
    check_numbers("a robustness coefficient", least=0, n=n, f=f, told=told)
    unmet = not_guaranteed({f"n > f + told, got n={n}, f={f} and told={told}": n > f + told})
    return unmet or Bound(told / (n - f - told))


def trimmed_mean_kappa(n: int, f: int) -> Bound:
    """Compute that of the coordinate-wise trimmed mean, 6 r (1 + r) with r = f / (n - 2f); see `least_kappa`.

    >>> print(trimmed_mean_kappa(6, 2))
    12
    """
    return _need_majority(n, f) or Bound(6 * _r(n, f) * (1 + _r(n, f)))


def krum_kappa(n: int, f: int) -> Bound:
    """Compute that of Krum with n - f - 1 neighbours, 6 (1 + r) with r = f / (n - 2f); see `least_kappa`.

    >>> print(krum_kappa(6, 2))
    12
    """
    return _need_majority(n, f) or Bound(6 * (1 + _r(n, f)))


def median_kappa(n: int, f: int) -> Bound:
    """Compute that of the geometric and coordinate-wise median, 4 (1 + r)^2 with r = f / (n - 2f); see `least_kappa`.

    >>> print(median_kappa(6, 2))
    16
    """
    return _need_majority(n, f) or Bound(4 * (1 + _r(n, f)) ** 2)


def mixed_kappa(n: int, f: int, kappa: float) -> Bound:
    """Compute that of a rule after nearest-neighbour mixing, 8 f / (n - f) (kappa + 1) (Lemma 1); see `least_kappa`.

    Args:
        n: Rows.
        f: Byzantine rows.
        kappa: The rule's own, at least 0.

    Raises:
        SettingError: If n < 1, f < 0 or kappa < 0.

    >>> print(mixed_kappa(6, 2, 12.0))
    52
    """
    check_numbers("mixing", least=0, kappa=kappa)
    return _need_majority(n, f) or Bound(8 * f / (n - f) * (kappa + 1))


def _r(n: int, f: int) -> float:
    return f / (n - 2 * f)


def _need_majority(n: int, f: int) -> Bound | None:
    if n < 1 or f < 0:
        raise SettingError(f"a robustness coefficient needs n >= 1 and f >= 0, got n={n} and f={f}.")
    return not_guaranteed({f"n > 2f, got n={n} and f={f}": n > 2 * f})
