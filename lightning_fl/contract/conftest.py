"""Leave out groups that have nothing to test, and whatever is not about the one name that is asked for."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from lightning_fl.contract import ONLY
from lightning_fl.contract.conf import names
from lightning_fl.errors import install

collect_ignore = [
    path.name for path in Path(__file__).parent.glob("test_*.py") if not names(path.stem.removeprefix("test_"))
]


def pytest_configure() -> None:
    """Say at once what is missing.

    Raises:
        UsageError: If it is Hypothesis.
    """
    if find_spec("hypothesis") is None:
        raise pytest.UsageError(f"the laws need hypothesis, got none; {install('test')}.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what is about the name in the environment's `ONLY`, if there is one."""
    if name := os.environ.get(ONLY):
        items[:] = [item for item in items if hasattr(item, "callspec") and name in item.callspec.params.values()]
