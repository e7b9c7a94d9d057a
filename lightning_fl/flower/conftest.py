"""Doctests of this folder need flwr."""

import warnings
from importlib.util import find_spec

collect_ignore_glob = []
if find_spec("flwr") is None:
    collect_ignore_glob.append("*.py")
else:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on import flwr and typer use names that others deprecate
        import flwr.serverapp.strategy  # noqa: F401
