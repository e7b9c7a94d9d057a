"""Tests of Flower run where it is installed."""

import warnings
from importlib.util import find_spec

if find_spec("flwr") is None:
    collect_ignore = ["grid.py"]
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import flwr and typer use names that others deprecate
        import flwr.serverapp.strategy  # noqa: F401

    if find_spec("flwr.supercore.task_identity") is not None:
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages ask which task sends them
