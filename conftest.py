"""How shapes are checked and settings composed, in tests and doctests alike: as ever, but sooner."""

from copy import deepcopy
from functools import cache, wraps
from inspect import isfunction

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import jaxtyping
import pytorch_lightning  # noqa: F401  (before modules of ours, within which jaxtyping's hook finds no compiled ones)
from hydra._internal import defaults_list
from hydra._internal.config_repository import ConfigRepository

_jaxtyped = jaxtyping.jaxtyped
_load, _loaded = ConfigRepository.load_config, {}
_choices_so_far = defaults_list._create_interpolation_map


@cache
def _checked(function, typechecker):
    """Make the checks of a function; kept here, for they cannot be pickled with it."""
    return _jaxtyped(function, typechecker=typechecker)


def _when_called(*, typechecker):
    """Decorate functions as jaxtyping's import hook does, but each when it is first called with the checks on.

    The checks of all functions would be made while modules are imported, which takes longer than most tests.
    """

    def decorate(function):
        if not isfunction(function):
            return _jaxtyped(function, typechecker=typechecker)
        if not function.__annotations__ or function.__module__.startswith("lightning_fl.contract."):
            return function  # the contract's own, such as its pretended GPU, which looks at each operation

        @wraps(function)
        def call(*args, **settings):
            called = function if jaxtyping.config.jaxtyping_disable else _checked(function, typechecker)
            return called(*args, **settings)

        return call

    return decorate


jaxtyping.jaxtyped = _when_called


def _load_once(repository, config_path):
    """Read a file of conf, and of Hydra's own, once: for each configuration some twenty would be read anew."""
    if any("command-line" in source.provider for source in repository.sources):
        return _load(repository, config_path)  # files of a test's own project, which it may change
    places = config_path, *(source.path for source in repository.sources)
    if places not in _loaded:
        _loaded[places] = _load(repository, config_path)
    return deepcopy(_loaded[places])


def _choices_where_asked(overrides, defaults, self_added):
    """Collect the choices so far only where a choice depends on them, not for each file."""
    asked = any(default.is_interpolation() for default in defaults)
    return _choices_so_far(overrides, defaults, self_added) if asked else {}


ConfigRepository.load_config = _load_once
defaults_list._create_interpolation_map = _choices_where_asked
