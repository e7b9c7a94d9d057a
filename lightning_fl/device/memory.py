"""How much memory a computation needs, on a device or by this process."""

import ctypes
from pathlib import Path

import torch


def reset_peak(device: torch.device) -> float | None:
    """Bytes that are held now, from where the peak starts again; None where the system does not tell."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return float(torch.cuda.memory_allocated(device))
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what is free already must not count as there before
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):  # TypeError: no system library by that name
        return None
    return held("VmRSS")


def peak(device: torch.device) -> float:
    """Most bytes that have been held since then."""
    return float(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else held("VmHWM")


def held(field: str) -> float:
    """Bytes of one field of Linux's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith(field))
