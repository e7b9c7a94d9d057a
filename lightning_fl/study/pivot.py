"""What runs of one place in a table have in common: mean, interval and lost runs over seeds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev


def t_quantile(degrees: int) -> float:
    """Compute the t for which a variable with Student's distribution is in [-t, t] with probability 0.95.

    >>> [round(t_quantile(degrees), 3) for degrees in (1, 2, 4, 29)]
    [12.706, 4.303, 2.776, 2.045]
    """
    from scipy.special import stdtrit  # not earlier: it takes a while, and most tables show no interval

    return float(stdtrit(degrees, 0.975))


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of two values or more (Student's t).

    >>> round(half_interval([1.0, 2.0, 3.0]), 3)
    2.484
    """
    return t_quantile(len(values) - 1) * stdev(values) / sqrt(len(values))


@dataclass(frozen=True)
class Group:
    """The runs of one place in the table.

    Args:
        values: Results of the completed runs, one per seed.
        lost: Numbers of the other runs by how they ended: diverged, interrupted, unfinished.
        curves: The metric of each run over rounds, and whether the run diverged.
        percent: Whether the values are percentages.
    """

    values: Sequence[float]
    lost: Counter[str]
    curves: Sequence[tuple[dict[int, float], bool]] = ()
    percent: bool = True

    @property
    def mean(self) -> float | None:
        """Mean over the completed runs; None if there is none."""
        return mean(self.values) if self.values else None

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval of the mean (Student's t over seeds); None for fewer than two runs."""
        return half_interval(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        """Write the mean, half of its interval, and how many runs are lost."""
        total = len(self.values) + self.lost.total()
        lost = ", ".join(f"{n} of {total} {status}" if total > 1 else status for status, n in self.lost.items())
        if self.mean is None:
            return lost or "-"
        form, small = (".1f", ".1f") if self.percent else (".3g", ".2g")
        around = "" if self.half is None else f" ± {self.half:{small}}"
        return f"{self.mean:{form}}{around}" + (f" ({lost})" if lost else "")
