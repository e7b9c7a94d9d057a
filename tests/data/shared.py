"""Data that lie beside the repository during development and are not part of the project."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared(name: str) -> Path:
    """Path of a file; skips the test where it is absent, as for the project's users."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"needs ../shared/data/{name}, which is beside the repository in development only")
    return path
