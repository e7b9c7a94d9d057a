"""What the plain functions say where an integer is needed and got a float."""

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import get_args

import pytest
import torch

import lightning_fl.aggregator
from lightning_fl.errors import SettingError

N, D = 23, 40
# Whatever a function needs besides.
GIVEN = {
    "f": 2,
    "s": 2,
    "m": 3,
    "steps": 2,
    "n_iterations": 2,
    "trusted": 0,
    "radius": 1.0,
    "learning_rate": 0.1,
    "temperature": 1.0,
    "generator": torch.Generator(),
    "gradient": lambda vector: torch.ones(D),
    "losses": torch.ones(N),
    "rho": 0.1,
    "coordinates": [torch.arange(D)],
    "groups": [torch.arange(D)],
    "rule": lambda rows: rows.mean(0),
    "class_updates": torch.ones(2, D),
    "server": torch.ones(2, D),
}


def functions():
    """Each integer setting of each rule's plain function."""
    for found in iter_modules(lightning_fl.aggregator.__path__):
        module = import_module(f"lightning_fl.aggregator.{found.name}")
        for name, function in vars(module).items():
            if (
                name.startswith("_")
                or name.endswith("_weights")
                or not inspect.isfunction(function)
                or function.__module__ != module.__name__
            ):
                continue
            parameters = list(inspect.signature(function).parameters.values())
            if parameters and parameters[0].name == "updates" and "Float" in repr(parameters[0].annotation):
                for parameter in parameters[1:]:
                    kinds = [parameter.annotation, *get_args(parameter.annotation)]
                    if int in kinds and float not in kinds:
                        yield pytest.param(function, parameter.name, id=f"{name}-{parameter.name}")


@pytest.mark.parametrize(("function", "name"), list(functions()))
def test_an_integer_is_needed(function, name, unchecked):
    updates = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    parameters = list(inspect.signature(function).parameters.values())[1:]
    needed = {p.name: GIVEN[p.name] for p in parameters if p.default is p.empty}
    function(updates, **needed)
    with pytest.raises(SettingError, match=rf"integer {name}|{name} must be a whole number"):
        function(updates, **needed | {name: 2.0})
