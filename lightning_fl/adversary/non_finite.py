"""Numbers that break arithmetic: what a broken or careless-hostile client sends."""

from math import inf, nan
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.base import Adversary, AttackContext, Knowledge
from lightning_fl.errors import check_choice
from lightning_fl.updates.updates import Updates

Kind = Literal["nan", "inf", "huge", "one_coordinate"]


class NonFinite(Adversary):
    """Send rows that a sum or a squared length does not survive.

    Args:
        kind: "nan" or "inf": in every coordinate.  "huge": 1e30 in every coordinate, finite, but its square overflows
            float32.  "one_coordinate": the honest mean with NaN in coordinate 0.  The numbers nan and inf mean their
            names: Hydra reads ``adversary.kind=nan`` as one.
        window: See `Adversary`.

    >>> import torch
    >>> NonFinite("one_coordinate")(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), n_byzantine=1)
    tensor([[nan, 4.]])
    """

    finite = False

    def __init__(self, kind: Kind | float = "nan", **window: Any):
        super().__init__(**window)
        check_choice("non_finite's kind", str(kind), get_args(Kind))
        self.kind: Kind = str(kind)  # type: ignore[assignment]
        self.knows: Knowledge = "updates" if kind == "one_coordinate" else "nothing"

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        if self.kind == "one_coordinate":
            row = honest.by_column(lambda rows: rows.mean(0))
            row[0] = nan
        else:
            row = honest.like.new_full((honest.d,), {"nan": nan, "inf": inf, "huge": 1e30}[self.kind])
        return row.expand(n_byzantine, -1)
