"""How many threads a process should use, and how they wait for each other.

By default the threads of GNU's OpenMP spin for milliseconds at the end of a parallel loop, so two processes on the same
cores block each other: on two cores a round of 32 ms takes 3 s in each.  Without spinning, a process that runs alone
takes 72 ms.  Spinning for a thousand turns, some microseconds, costs a lone process nothing; of two, each takes 97 ms.
"""

import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

# Where somebody has said how threads wait.
_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
_TURNS = 1000
# Rows up to which a matrix is decomposed faster by one thread than by two.
_SMALL = 512
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


@cache
def _intel(path: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this is a processor for which torch's matrix products (MKL) have kernels of their own."""
    try:
        return "GenuineIntel" in path.read_text()
    except OSError:  # not Linux
        return "Intel" in platform.processor()


def numpy_multiplies() -> bool:
    """Whether NumPy (OpenBLAS) multiplies float64 matrices on this CPU rather than torch.

    On an AMD EPYC it takes 0.7 times as long with one thread; on an Intel Xeon 0.8 to 1.3 times with one, and 2 to 8
    times with 16, which small products mostly keep waiting.
    """
    import torch

    return not _intel() and torch.get_num_threads() <= 2


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, also in threads that start meanwhile."""
    import torch

    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def threads_for(n: int) -> AbstractContextManager[None]:
    """Decompose matrices of n rows in as many threads as pay: in small ones several mostly wait for each other."""
    return one_thread() if n <= _SMALL else nullcontext()


def eigh(matrix: Any) -> Any:
    """Decompose a symmetric matrix, as torch.linalg.eigh, in as many threads as pay."""
    import torch

    with threads_for(len(matrix)):
        return torch.linalg.eigh(matrix)


def in_threads(work: Callable[[Any], Any], items: Collection[Any], device: str = "cpu") -> list[Any]:
    """Do NumPy's or torch's work for each item: on a CPU in as many threads as torch has, one for an item.

    Args:
        work: What to do.
        items: What each call gets.
        device: The type of device that computes; an accelerator's work is given to it by one thread.
    """
    import torch

    threads = min(torch.get_num_threads(), len(items)) if device == "cpu" else 1
    if threads <= 1:
        return [work(item) for item in items]
    # Threads take over how many torch has when they first ask.
    with one_thread(), ThreadPoolExecutor(threads, initializer=torch.get_num_threads) as pool:
        return list(pool.map(work, items))
