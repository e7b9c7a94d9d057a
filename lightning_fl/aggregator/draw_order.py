"""Random orders of the rows that do not depend on the one in which they arrived."""

from collections import Counter
from functools import partial
from hashlib import blake2b

import torch
from jaxtyping import Int64
from torch import Tensor

from lightning_fl import seeding
from lightning_fl.updates.updates import Updates


def _row(rows: Tensor, i: int) -> Tensor:
    return rows[i]


def draw_order(updates: Updates, seed: int) -> Int64[Tensor, " n"]:
    """Put the rows into a random order that does not depend on the one in which they arrived.

    Each row draws a number from the seed and its client's.  Where rows are not single clients, what a row holds stands
    in for the client, and copies are counted; of mixed rows, whose last digits depend on the order in which the clients
    are added up, another order of these may draw another one.

    Args:
        updates: The round.
        seed: Which of all orders.

    Returns:
        Row numbers; every order of the clients is equally likely over seeds.
    """
    names: list[int | str] = [] if updates.ids is None else [int(i) for i in updates.ids]
    if not names:
        copies: Counter[str] = Counter()
        for i in range(updates.n):
            row: Tensor = updates.whole.by_column(partial(_row, i=i)).cpu()
            content = blake2b(row.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
            names.append(f"{content} {copies[content]}")
            copies[content] += 1
    draws = [seeding.derive_seed(seed, name) for name in names]
    return torch.tensor(draws).argsort()
