"""A rule of your own."""

from lightning_fl import Updates, Weighting, finite_rows
from lightning_fl.ranges import NonNegativeInt


class MyRule(Weighting):
    """Average the n - f shortest updates.

    Args:
        f: Byzantine clients tolerated, 0 to n - 1.
    """

    least = "f + 1"
    moves_with = ("scale", "rotation")  # not with a shift: its tests skip that law

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def weights(self, updates: Updates, server):
        """Share the weight equally among the shortest."""
        squares = updates.squares
        rows = finite_rows(squares, "my_rule")
        chosen = rows[squares[rows].argsort(stable=True)[: updates.n - self.f]]
        return squares.new_zeros(updates.n).index_fill(0, chosen, 1 / len(chosen))
