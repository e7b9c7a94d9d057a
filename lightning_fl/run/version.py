"""Which code measured a result."""

import subprocess
from pathlib import Path

from lightning_fl import __version__


def version() -> str:
    """Name the package's version and, of a checkout, its commit: 0.1.0+g1a2b3c4, with .dirty if its code is changed."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return __version__
    try:
        commit = _git(checkout, "describe", "--always", "--exclude=*")
        # A kept table that grows while it is measured changes no number.
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "lightning_fl", "conf")
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    return f"{__version__}+g{commit}{'.dirty' if changed else ''}" if commit else __version__


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
