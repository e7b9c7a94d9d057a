"""A rule of your own that goes by coordinates and weighs no client."""

from lightning_fl import Aggregation, Aggregator, Updates
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.updates.ordered import ordered


class MyMidrange(Aggregator):
    """Take the middle between the ends of each coordinate's values, without the f smallest and the f largest.

    Args:
        f: Byzantine clients tolerated, fewer than half.
    """

    least = "2f + 1"
    moves_with = ("shift", "scale")  # but with no rotation: a law that its tests do not hold it to

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def aggregate(self, updates: Updates, server) -> Aggregation:
        """Sort each coordinate and take the middle; updates with NaN or inf are left out and count among the f."""
        values = ordered(updates, "my_midrange")
        f = max(self.f - (updates.n - values.n), 0)
        return Aggregation(values.at(f, values.n - 1 - f))
