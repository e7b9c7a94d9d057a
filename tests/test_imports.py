"""What a file imports at any depth is what its reader must trust: imports run one way, and the floor is small."""

import ast
from functools import cache
from pathlib import Path

import pytest

import lightning_fl

PACKAGE = Path(lightning_fl.__file__).parent
RUNS = {"commands", "study", "run", "module"}
PARTS = ["adversary", "aggregator", "client", "data", "loss", "metric", "model", "partition", "schedule", "server"]
ABOVE = {  # what a folder's files do not import
    "study": {"commands"},
    "run": {"commands", "study"},
    **dict.fromkeys([*PARTS, "theory"], RUNS),
    **{room: {*RUNS, *PARTS} for room in ["updates", "network"]},
}


@cache
def text_of(module):
    """A module's text; None if it is none of the package."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    found = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.exists()), None)
    return None if found is None else found.read_text("utf-8")


def imported(module):
    """Modules of the package that one imports when it is imported itself."""
    for node in ast.parse(text_of(module)).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lightning_fl":
            for name in node.names:
                inside = f"{node.module}.{name.name}"
                yield node.module if text_of(inside) is None else inside


def closure(module):
    found, left = set(), [module]
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += imported(one)
    return found


def test_plain_averaging_is_read_in_a_sitting():
    read = closure("lightning_fl.aggregator.average")
    assert "lightning_fl.updates.updates" in read
    assert len(read) <= 12
    assert sum(len(text_of(module).splitlines()) for module in read) <= 2000


@pytest.mark.parametrize("folder", ABOVE)
def test_imports_run_one_way(folder):
    for path in (PACKAGE / folder).glob("*.py"):
        rooms = {module.split(".")[1] for module in imported(f"lightning_fl.{folder}.{path.stem}") if "." in module}
        assert not rooms & ABOVE[folder], path
