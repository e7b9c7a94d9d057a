"""A round over several processes: clients in, columns through, model out.

Each process computes the updates of its own clients (`lightning_fl.client.dealt`).  One exchange turns them into a
block of columns of all updates, on which the rule works: what it asks of `Updates` is added up over the processes
(`Block`), and every vector of length d that it takes or returns is whole.  So rules, attacks and servers need not
know of processes.

A rule or an attack that reads ``updates.rows`` gets all columns, on every process: correct, but with as much memory as
one process alone needs.  `Updates.by_column` and `Updates.by_block` avoid that.

All processes take the same decisions, since they take them from the same numbers.  So every function below that
communicates must be called by all of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl.errors import ProcessError
from lightning_fl.updates import columns

# Numbers that a process sends at a time: 16 MiB in float32, or a whole update.
_SENT = 2**22


def world() -> int:
    """How many processes compute the round."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@contextmanager
def _together() -> Iterator[None]:
    """Explain what the backend says when another process is gone."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # whatever gloo or NCCL make of it
        said = re.sub(r"^(\[\S*\]\s*)*", "", " ".join(str(error).split()))[:100]
        raise ProcessError(
            f"process {dist.get_rank()} of {dist.get_world_size()} no longer reaches the others, one of which was "
            f"stopped or has failed ({said})"
        ) from error


def total(tensor: Tensor) -> Tensor:
    """Add up the processes' tensors."""
    return begin_total(tensor)()


def begin_total(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to add up the processes' tensors; what is returned waits for the sum."""
    if world() == 1:
        return lambda: tensor
    tensor = tensor.contiguous()
    with _together():
        work = dist.all_reduce(tensor, async_op=True)

    def end() -> Tensor:
        with _together():
            work.wait()
        return tensor

    return end


def shared(function: Callable[[Tensor], Tensor], rows: Float[Tensor, "k d"]) -> Float[Tensor, " k"]:
    """Apply a function from rows to one number each, on every process to some of them."""
    if world() == 1:
        return function(rows)
    own = slice(dist.get_rank(), None, world())
    found = rows.new_zeros(len(rows))
    if len(found[own]):
        found[own] = function(rows[own])
    return total(found)


def anywhere(fact: bool, device: torch.device) -> bool:
    """Whether it is so in any process."""
    return bool(fact) if world() == 1 else total(torch.tensor(float(fact), device=device)).item() > 0


def deal(costs: Sequence[float], n_processes: int) -> list[list[int]]:
    """Deal clients out so that every process has about as much to do: the dearest first, each to whom has least.

    Args:
        costs: What each costs.
        n_processes: How many processes there are.

    Returns:
        For each process the places of its clients, ascending.

    >>> deal([1.0, 5.0, 1.0, 1.0, 1.0], 2)
    [[1], [0, 2, 3, 4]]
    """
    parts: list[list[int]] = [[] for _ in range(n_processes)]
    loads = [0.0] * n_processes
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        r = loads.index(min(loads))
        parts[r].append(i)
        loads[r] += costs[i]
    return [sorted(part) for part in parts]


@dataclass(frozen=True)
class Block(columns.Columns):
    """The columns that each process holds: neighbouring ones, as many as the others or one more.

    Args:
        d: How many there are.
        rank: Number of this process.
        n_processes: How many there are.

    >>> Block(5, 1, 2).widths, Block(5, 1, 2).own(torch.arange(5))
    ([2, 3], tensor([2, 3, 4]))
    """

    rank: int
    n_processes: int

    partial = True

    @staticmethod
    def here(d: int) -> "Block | None":
        """Those of this process; None where it is the only one."""
        return Block(d, dist.get_rank(), dist.get_world_size()) if world() > 1 else None

    @property
    def _bounds(self) -> list[int]:
        return [self.d * r // self.n_processes for r in range(self.n_processes + 1)]

    @property
    def widths(self) -> list[int]:
        """How many each process holds."""
        bounds = self._bounds
        return [stop - start for start, stop in pairwise(bounds)]

    @property
    def width(self) -> int:
        """How many this process holds."""
        return self.widths[self.rank]

    def own(self, vectors: Tensor) -> Tensor:
        """Cut this process's columns out of whole vectors."""
        bounds = self._bounds
        return vectors[..., bounds[self.rank] : bounds[self.rank + 1]]

    def whole(self, block: Float[Tensor, "*b _"]) -> Float[Tensor, "*b d"]:
        """Put the processes' columns of the same vectors together."""
        if block.ndim > 1 and block.stride(0) == 0 and len(block):
            return self.whole(block[0]).expand(len(block), *block.shape[1:-1], self.d)
        n = block.shape[:-1].numel()
        counts = [n * w for w in self.widths]
        found = block.new_empty(n * self.d)
        self._swap(found, counts, block.reshape(-1).repeat(self.n_processes), [block.numel()] * self.n_processes)
        parts = found.split(counts)
        return torch.cat([p.view(*block.shape[:-1], w) for p, w in zip(parts, self.widths, strict=True)], dim=-1)

    def total(self, sums: Tensor) -> Tensor:
        """Add up the processes' sums."""
        return total(sums)

    def stack(self, found: Tensor) -> Tensor:
        """Stack what the processes found."""
        parts = found.new_zeros(self.n_processes, *found.shape)
        parts[self.rank] = found
        return total(parts)

    def chosen(self, rows: Float[Tensor, "n _"], index: Tensor | slice) -> Float[Tensor, "n k"]:
        """Take some of the d columns, on every process."""
        every = torch.arange(self.d, device=rows.device)
        places, mine = every[index], self.own(every)
        found = rows.new_zeros(len(rows), len(places))
        here = (places >= mine[0]) & (places <= mine[-1])
        found[:, here] = rows[:, places[here] - mine[0]]
        return total(found)

    def to_columns(self, rows: Float[Tensor, "m d"], parts: Sequence[Sequence[int]], out: Float[Tensor, "n _"]) -> None:
        """Write into ``out`` this process's columns of all rows, of which each process has some.

        Args:
            rows: Those of this process.
            parts: The places of each process's rows.
            out: One row for each place.
        """
        others = [() if r == self.rank else part for r, part in enumerate(parts)]
        step = min(max(1, _SENT // self.d), max(map(len, parts)))
        # One memory for all steps: fresh pages cost as much as what is sent.
        to_send = out.new_empty(step * (self.d - self.width))
        to_find = out.new_empty(step * self.width * (self.n_processes - 1))
        for start in range(0, max(map(len, parts)), step):
            blocks = list(rows[start : start + step].split(self.widths, dim=1))
            out[list(parts[self.rank][start : start + step])] = blocks[self.rank]
            blocks[self.rank] = blocks[self.rank][:0]
            sizes = [block.numel() for block in blocks]
            sent = to_send[: sum(sizes)]
            for block, memory in zip(blocks, sent.split(sizes), strict=True):
                memory.view_as(block).copy_(block)
            places = [part[start : start + step] for part in others]
            counts = [len(place) * self.width for place in places]
            found = to_find[: sum(counts)]
            self._swap(found, counts, sent, sizes)
            for place, memory in zip(places, found.split(counts), strict=True):
                out[list(place)] = memory.view(-1, self.width)

    def to_all(self, rows: Float[Tensor, "m d"], parts: Sequence[Sequence[int]], out: Float[Tensor, "n d"]) -> None:
        """Write all rows into ``out``, of which each process has some; see `to_columns`."""
        step = max(1, _SENT // self.d)
        for r, part in enumerate(parts):
            for start in range(0, len(part), step):
                places = list(part[start : start + step])
                block = rows[start : start + step] if r == self.rank else out.new_empty(len(places), self.d)
                out[places] = from_process(r, block)

    def _swap(self, out: Tensor, counts: list[int], sent: Tensor, sizes: list[int]) -> None:
        """Send each process its part of ``sent``, and write what each of them sends here into ``out``."""
        with _together():
            dist.all_to_all_single(out, sent, counts, sizes)


def same_start(model: nn.Module) -> None:
    """Give every process the parameters and buffers of the first one."""
    for value in (*model.parameters(), *model.buffers()):
        value.data.copy_(from_process(0, value.data))


def from_process(process: int, tensor: Tensor) -> Tensor:
    """Get one process's tensor; backends send contiguous memory, and not all types of numbers."""
    sent = tensor.contiguous()
    if sent.numel():
        with _together():
            dist.broadcast(sent.view(-1).view(torch.uint8), process)
    return sent
