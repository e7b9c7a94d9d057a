"""The signs of updates, column by column."""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.updates.rows import broken_rows

# Entries whose signs are added up at a time.
_ENTRIES_CPU, _ENTRIES_GPU = 2**19, 2**26


def sign_sums(rows: Float[Tensor, "n k"]) -> Float[Tensor, " k"]:
    """Add up the signs of each column, exactly; a row with NaN or inf has none.

    >>> sign_sums(torch.tensor([[2.0, -1.0], [0.5, torch.nan], [3.0, -4.0]]))
    tensor([ 2., -2.])
    """
    broken = broken_rows(rows)[:, None]
    width = max(1, (_ENTRIES_CPU if rows.device.type == "cpu" else _ENTRIES_GPU) // len(rows))
    blocks = rows.split(width, dim=1)
    return torch.cat([block.sign().masked_fill_(broken, 0.0).sum(0, dtype=torch.float32) for block in blocks])
