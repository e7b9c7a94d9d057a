"""Tests of Flower run where it is installed."""

import warnings
from copy import deepcopy
from functools import cache
from importlib.util import find_spec

import pytest

from lightning_fl.run.config import compose

if find_spec("flwr") is None:
    collect_ignore = ["grid.py"]
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import flwr and typer use names that others deprecate
        import flwr.serverapp.strategy  # noqa: F401

    if find_spec("flwr.supercore.task_identity") is not None:
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages ask which task sends them

    from lightning_fl.flower import strategy

    @cache
    def composed(*arguments):
        return compose(arguments)

    @pytest.fixture(autouse=True)
    def composed_once(monkeypatch):
        """Composing takes a tenth of a second; few rules are asked for by name, again and again."""
        monkeypatch.setattr(strategy, "compose", lambda arguments: deepcopy(composed(*arguments)))
