"""Work in as many threads as pay, on the CPU."""

import platform
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch


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
    return not _intel() and torch.get_num_threads() <= 2


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, also in threads that start meanwhile."""
    threads = torch.get_num_threads()
    if threads > 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads > 1:
            torch.set_num_threads(threads)


def in_threads(work: Callable[[Any], Any], items: Collection[Any], device: str = "cpu") -> list[Any]:
    """Do NumPy's or torch's work for each item: on a CPU in as many threads as torch has, one for an item.

    Args:
        work: What to do.
        items: What each call gets.
        device: The type of device that computes; an accelerator's work is given to it by one thread.
    """
    threads = min(torch.get_num_threads(), len(items)) if device == "cpu" else 1
    if threads <= 1:
        return [work(item) for item in items]
    # Threads take over how many torch has when they first ask.
    with one_thread(), ThreadPoolExecutor(threads, initializer=torch.get_num_threads) as pool:
        return list(pool.map(work, items))
