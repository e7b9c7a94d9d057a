"""What trains many runs: processes of this machine, or a cluster of Ray."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from lightning_fl.study import pool
from lightning_fl.study.pool import Outcome, Run

Execute = Callable[[Sequence[Run]], Generator[Outcome, None, None]]
"""Trains runs, wherever, and yields each as it ends."""


def executor(workers: int, on: str | None = None) -> Execute:
    """Choose where runs are trained into their folders.

    Args:
        workers: How many at a time.
        on: "ray", or the address of a cluster of Ray.  None: processes of this machine.
    """
    if on is None:
        return partial(pool.execute, workers=workers)
    from lightning_fl.study import ray_pool

    return partial(ray_pool.execute, workers=workers, address=_address(on))


def each(on: str | None = None) -> Callable[..., Iterator[Any]]:
    """Choose where a function is called with each of many arguments; see `pool.each` and `executor`."""
    if on is None:
        return pool.each
    from lightning_fl.study import ray_pool

    return partial(ray_pool.each, address=_address(on))


def _address(on: str) -> str | None:
    return None if on == "ray" else on
