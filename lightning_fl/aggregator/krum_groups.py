"""Krum in many groups of coordinates at once, as gradient splitting asks it; see `Gas`."""

from functools import partial
from math import prod

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.threads import in_threads

# Distances held at a time: on a CPU, by each thread.
_ENTRIES_CPU, _ENTRIES_GPU = 2**18, 2**26
# Share of the squared length of Krum's choice that its squared distances must exceed to be taken from inner products.
_CLEAR = 2.0**-20


class FromKrum:
    """Rows' distances from what Krum, or Multi-Krum, answers in several groups at once; see `Krum` and `MultiKrum`.

    Args:
        f: The rule's f.
        m: How many to average; None: n - f.
        neighbours: How many others count in a score.

    >>> FromKrum(f=1)(torch.tensor([[[0.0], [1.0], [2.0], [5.0], [54.0]]]))
    tensor([[ 1.,  0.,  1.,  4., 53.]], dtype=torch.float64)
    """

    def __init__(self, f: int, m: int | None = 1, neighbours: str = "n-f-2"):
        self.f = f
        self.m = m
        self.neighbours = neighbours
        self._spare: list[Tensor] = []  # of threads that wait: fresh pages would cost as much as the work

    def __call__(self, blocks: Float[Tensor, "q n k"]) -> Float64[Tensor, "q n"]:
        """Compute the distances.

        Args:
            blocks: Columns of each group, a row of NaN for an update that is not finite.

        Returns:
            The distances, NaN for an update that is not finite.
        """
        n, device = blocks.shape[1], blocks.device
        rows = finite_rows(blocks[0, :, 0].double(), "krum")
        most = max(1, (_ENTRIES_CPU if device.type == "cpu" else _ENTRIES_GPU) // n**2)
        work, parts = partial(self._some, rows), blocks.split(most)
        found = torch.cat(in_threads(work, parts, device.type))
        return found if len(rows) == n else found.new_full(blocks.shape[:2], torch.nan).index_copy(1, rows, found)

    def _some(self, rows: Tensor, blocks: Tensor) -> Tensor:
        """The finite rows' distances in some groups."""
        n, (q, sent, k) = len(rows), blocks.shape
        shapes = (q, n, k), (q, n, n), (q, n, n)
        sizes = [prod(shape) for shape in shapes]
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = blocks.new_empty(0)
        if len(memory) < sum(sizes):
            memory = blocks.new_empty(sum(sizes), dtype=torch.float64)
        parts = memory[: sum(sizes)].split(sizes)
        columns, gram, distances = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        columns.copy_(blocks if n == sent else blocks[:, rows])
        keep = n - max(self.f - (sent - n), 0)
        counted = keep - 1 if self.neighbours == "n-f-2" else keep  # itself at 0, and the others

        def scores() -> Tensor:
            """Each row's sum of its smallest squared distances."""
            lengths = torch.bmm(columns, columns.mT, out=gram).diagonal(dim1=1, dim2=2)
            torch.add(lengths[:, None], lengths[:, :, None], out=distances)
            distances.sub_(gram, alpha=2).clamp_(min=0).diagonal(dim1=1, dim2=2).zero_()
            if distances.device.type == "cpu":  # a third of torch's time
                distances.numpy().sort(axis=2)
                return distances[..., :counted].sum(2)
            return distances.sort(dim=2).values[..., :counted].sum(2)

        found = scores()
        least, first = found.min(1, keepdim=True)
        if (least < _CLEAR * counted * gram.diagonal(dim1=1, dim2=2).gather(1, first)).any():  # rows share an offset
            columns -= columns.gather(1, first[:, :, None].expand(q, 1, k))
            found = scores()
        best = found.argsort(dim=1, stable=True)[:, : keep if self.m is None else min(self.m, n)]
        weights = torch.zeros_like(found).scatter_(1, best, 1 / best.shape[1])
        columns -= weights[:, None] @ columns
        found = torch.linalg.vector_norm(columns, dim=2)
        self._spare.append(memory)
        return found
