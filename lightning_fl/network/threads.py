"""How many threads a process should use, and how they wait for each other.

By default the threads of GNU's OpenMP spin for milliseconds at the end of a parallel loop, so two processes on the same
cores block each other: on two cores a round of 32 ms takes 3 s in each.  Without spinning, a process that runs alone
takes 72 ms.  Spinning for a thousand turns, some microseconds, costs a lone process nothing; of two, each takes 97 ms.
"""

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import suppress
from math import ceil
from pathlib import Path

# Where somebody has said how threads wait.
_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
_TURNS = 1000
# Where somebody has said how many threads there are.
_COUNTS = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}


def spin_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let threads spin for some microseconds only, unless the environment says something else.

    It must come before torch, which loads the library that reads it.
    """
    if "torch" not in sys.modules and not _WAITING & environment.keys():
        environment["GOMP_SPINCOUNT"] = str(_TURNS)


def n_cores(root: Path = Path("/")) -> int:
    """Count the cores that this process may use: by affinity, and by the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min([allowed, *(ceil(quota) for quota in _quotas(root))]), 1)


def _quotas(root: Path) -> Iterator[float]:
    """How many cores' time each group around this process gets, where it is limited; Linux only."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = name.strip("/").split("/")
        for mounted in (controllers, "cpu") if controllers else ("", "unified"):
            for depth in range(len(parts) + 1):
                yield from _quota(root.joinpath("sys/fs/cgroup", mounted, *parts[:depth]))


def _quota(folder: Path) -> Iterator[float]:
    """Of one group, by version 2 or 1 of the interface."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        yield int(quota) / int(period)  # "max" is not a number: no limit
    with suppress(OSError, ValueError):
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            yield int(quota) / int(period)


def n_threads(environment: Mapping[str, str] = os.environ) -> int:
    """How many threads torch should use: as many as the environment says, else at most one for each core."""
    import torch

    threads = torch.get_num_threads()
    return threads if _COUNTS & environment.keys() else min(threads, n_cores())


def settle_threads(environment: Mapping[str, str] = os.environ) -> str | None:
    """Let torch use as many threads as there are cores for it.

    Returns:
        What was chosen, where it is not torch's own choice.
    """
    import torch

    threads, before = n_threads(environment), torch.get_num_threads()
    if threads == before:
        return None
    set_threads(threads)
    return (
        f"Threads    {threads}: this process may use {n_cores()} of {os.cpu_count()} cores; OMP_NUM_THREADS sets "
        f"another number"
    )


def set_threads(threads: int) -> None:
    """Let torch, and NumPy's products, use so many threads."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads, "blas")
