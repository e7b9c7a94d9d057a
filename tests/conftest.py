"""What every test may use."""

import logging
import os
import sys
from contextlib import suppress

if "PYTEST_XDIST_WORKER" in os.environ:  # one thread for each of the processes side by side, and for what they start
    os.environ["OMP_NUM_THREADS"] = "1"

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

from collections import Counter

import jaxtyping
import pytest
import torch
from hydra._internal.hydra import Hydra

import tests.starting  # noqa: F401  (decides what processes are forked from)
from tests.blank import leave_blank
from tests.commands.command import outcome

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

with suppress(ImportError):  # dp-accounting's absl would close what pytest captures, once Hydra sets up logging
    from absl import logging as absl_logging

    absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__

collect_ignore = ["forked.py"]  # whoever imports it draws no more


@pytest.fixture(autouse=True)
def _pictures_stay_blank(request, monkeypatch):
    """Leave pictures undrawn; marked ``drawn``: as ever."""
    if request.node.get_closest_marker("drawn") is None:
        leave_blank(monkeypatch.setattr)


@pytest.fixture(scope="session", autouse=True)
def _composed_once():
    """Before each run Hydra composes all settings once more to read hydra.mode, which nobody sets here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hydra, "get_mode", lambda *_, **__: None)
        yield


def pytest_collection_modifyitems(items):
    """Spread files that have slow tests, which mostly wait for processes, over the first two thirds of the others.

    Some workers then compute while others wait, and none ends long after the others.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    tests, places = Counter(item.path for item in items), {}
    others, before = len(items) - sum(tests[path] for path in slow), 0
    for path in tests:
        if path in slow:
            places[path] = 2 / 3 * len(slow & places.keys()) / len(slow)
        else:
            places[path] = before / others
            before += tests[path]
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(autouse=True)
def _no_handler_writes_to_a_closed_stream():
    """Undo what Hydra's command leaves in the process: a logger's handler on the captured output of one test."""
    yield
    for logger in [logging.root, *logging.root.manager.loggerDict.values()]:
        for handler in getattr(logger, "handlers", [])[:]:
            if getattr(getattr(handler, "stream", None), "closed", False):
                logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def _shapes_are_checked_by_the_contract():
    """And by doctests, at every call of every part; here they would take half of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def draw():
    """A seeded generator for random problems."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Type a command line in an empty folder; gives exit code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")

    def typed(main, *words):
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        return outcome(main, capsys)

    return typed
