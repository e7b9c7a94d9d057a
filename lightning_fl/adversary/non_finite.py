"""Numbers that break arithmetic: what a broken or careless-hostile client sends."""

from math import inf, nan
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.errors import check_choice
from lightning_fl.updates.updates import Updates

Kind = Literal["nan", "inf", "huge", "one_coordinate"]


def non_finite(honest: Float[Tensor, "h d"], n_byzantine: int, kind: Kind = "nan") -> Float[Tensor, "b d"]:
    """Send rows that a sum or a squared length does not survive.

    Args:
        honest: One honest update per row.
        n_byzantine: How many copies to send.
        kind: "nan" or "inf": in every coordinate.  "huge": 1e30 in every coordinate, finite, but its square overflows
            float32.  "one_coordinate": the honest mean with NaN in coordinate 0.

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If there is no such kind.

    >>> import torch
    >>> non_finite(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), n_byzantine=1, kind="one_coordinate")
    tensor([[nan, 4.]])
    """
    _check(kind)
    if kind == "one_coordinate":
        row = honest.mean(0)
        row[0] = nan
    else:
        row = honest.new_full((honest.shape[1],), {"nan": nan, "inf": inf, "huge": 1e30}[kind])
    return row.expand(n_byzantine, -1)


def _check(kind: str) -> None:
    check_choice("non_finite's kind", kind, get_args(Kind))


class NonFinite(Adversary):
    """Send NaN, infinity or huge numbers; see `non_finite`.

    Args:
        kind: See `non_finite`.  The numbers nan and inf mean their names: Hydra reads ``adversary.kind=nan`` as one.
    """

    def __init__(self, kind: Kind | float = "nan"):
        _check(str(kind))
        self.kind: Kind = str(kind)  # type: ignore[assignment]

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        one = self.kind == "one_coordinate"
        rows = honest.by_column(lambda rows: rows.mean(0, keepdim=True)) if one else honest.like
        return non_finite(rows, n_byzantine, self.kind)
