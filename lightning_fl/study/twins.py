"""The instrument's error: how far twins end from their runs.

A twin has its run's settings and seed, and every initial parameter one unit in its last place away (``twin=1``).  What
it ends apart is what rounding alone does, as other matrix kernels or another machine would.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median, quantiles
from typing import TypeVar

from lightning_fl.text import many

NUMBER = 1
MARK = "‡"
MEANING = f"`{MARK}` its twin ends farther away than half of the seeds' 95 % interval"
_MOST = 1.0  # points that 95 % of twins may be apart where nothing is known of the seeds
_NAMED = 3  # cells at most

Label = TypeVar("Label", bound=Hashable)


@dataclass(frozen=True)
class Pair:
    """A run and its twin.

    Args:
        label: What a person calls the cell.
        run: The run's result, in points.
        twin: The twin's.
        half: Half of the seeds' 95 % interval of the mean; None for fewer than two seeds.
    """

    label: str
    run: float
    twin: float
    half: float | None = None

    @property
    def apart(self) -> float:
        """How far they are apart."""
        return abs(self.run - self.twin)

    @property
    def far(self) -> bool:
        """Whether they are farther apart than the seeds' interval reaches."""
        return self.half is not None and self.apart > self.half


def drawn(labels: Iterable[Label], share: float) -> list[Label]:
    """Draw a share of the cells, one at least, each by its own name, so that a larger share holds the smaller ones.

    >>> cells = [("BOBA", "IPM"), ("BOBA", "LIE"), ("Krum", "IPM"), ("Krum", "LIE")]
    >>> len(drawn(cells, 0.3)), set(drawn(cells, 0.3)) < set(drawn(cells, 0.6)), drawn(cells, 1.0) == cells
    (2, True, True)
    """
    cells = list(dict.fromkeys(labels))
    from lightning_fl import seeding  # it takes torch along, and help does not wait for that

    by_draw = sorted(cells, key=lambda cell: seeding.derive_seed(0, "twins", repr(cell)))
    kept = set(by_draw[: ceil(share * len(cells))])
    return [cell for cell in cells if cell in kept]


def percentile_95(values: Sequence[float]) -> float:
    """Interpolate the 95th percentile of one value or more.

    >>> percentile_95([0.0, 1.0]), percentile_95([3.0])
    (0.95, 3.0)
    """
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def conclusion(pairs: Sequence[Pair], changed: Sequence[str] | None = None) -> list[str]:
    """Say how far the twins are apart, and whether the table can carry its conclusions.

    It can where 95 % of twins end closer than the seeds' typical interval reaches, or than 1 point where there is one
    seed, and no claim changes its verdict.

    Args:
        pairs: Runs and twins, one at least.
        changed: Claims whose verdicts are others with the twins in place of their runs.  None: no claim has a verdict.

    Returns:
        Two sentences, one per line.

    >>> for line in conclusion([Pair("Krum", 80.0, 80.2, 1.5), Pair("BOBA", 85.0, 79.0, 2.5)], changed=[]): print(line)
    Twins of 2 cells: |run - twin| median 3.1, 95th percentile 5.7 points; farther than the seeds' interval: BOBA 6.0.
    These numbers cannot carry differences below 5.7 points: rounding alone moves a run by as much (2.0 at most).
    """
    apart = [pair.apart for pair in pairs]
    halves = [pair.half for pair in pairs if pair.half is not None]
    most, reached = median(halves) if halves else _MOST, percentile_95(apart)
    far = sorted((pair for pair in pairs if pair.far), key=lambda pair: -pair.apart)
    named = ", ".join(f"{pair.label} {pair.apart:.1f}" for pair in far[:_NAMED])
    named += f" and {len(far) - _NAMED} more" if len(far) > _NAMED else ""
    beyond = f"; farther than the seeds' interval: {named or 'none'}" if halves else ""
    first = f"Twins of {many(len(pairs), 'cell')}: |run - twin| median {median(apart):.1f}, 95th percentile "
    lines = [f"{first}{reached:.1f} points{beyond}."]
    if reached > most:
        return [
            *lines,
            f"These numbers cannot carry differences below {reached:.1f} points: rounding alone moves a run by as much "
            f"({most:.1f} at most).",
        ]
    if changed:
        return [*lines, f"These numbers cannot carry what turns with twins in place of runs: {'; '.join(changed)}."]
    claims = "" if changed is None else ", and each claim keeps its verdict"
    limit = f"{most:.1f} points, half of the seeds' interval" if halves else f"{most:.1f} points"
    moved = f"less than {limit}" if round(most, 1) else "nothing"
    return [*lines, f"These numbers can carry their conclusions: rounding moves a run by {moved}{claims}."]
