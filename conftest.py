"""How shapes are checked, in tests and doctests alike."""

from functools import wraps
from inspect import isfunction

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import jaxtyping
import pytorch_lightning  # noqa: F401  (before modules of ours, within which jaxtyping's hook finds no compiled ones)

_jaxtyped = jaxtyping.jaxtyped


def _when_called(*, typechecker):
    """Decorate functions as jaxtyping's import hook does, but each when it is first called with the checks on.

    The checks of all functions would be made while modules are imported, which takes longer than most tests.
    """

    def decorate(function):
        if not isfunction(function):
            return _jaxtyped(function, typechecker=typechecker)
        checked = None

        @wraps(function)
        def call(*args, **settings):
            nonlocal checked
            if jaxtyping.config.jaxtyping_disable:
                return function(*args, **settings)
            if checked is None:
                checked = _jaxtyped(function, typechecker=typechecker)
            return checked(*args, **settings)

        return call

    return decorate


jaxtyping.jaxtyped = _when_called
