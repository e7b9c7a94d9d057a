"""How shapes are checked and settings composed, in tests and doctests alike: as ever, but sooner."""

import os
import pickle
from copy import copy
from functools import cache, wraps
from inspect import isfunction
from itertools import takewhile

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import jaxtyping
import pytest
import pytorch_lightning  # noqa: F401  (before modules of ours, within which jaxtyping's hook finds no compiled ones)
from hydra import version
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra.plugins.config_source import ConfigResult
from omegaconf import _utils, base

from lightning_fl.network.threads import n_cores

_jaxtyped = jaxtyping.jaxtyped
_load, _loaded = ConfigRepository.load_config, {}
_merge, _merged = ConfigLoaderImpl._compose_config_from_defaults_list, {}
_load_single = ConfigLoaderImpl._load_single_config
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


def _changes(repository):
    """Whether the files are those of a test's own project, too, which it may change."""
    return any("command-line" in source.provider for source in repository.get_sources())


def _load_once(repository, config_path):
    """Read a file of conf, and of Hydra's own, once: for each configuration some twenty would be read anew."""
    if _changes(repository):
        return _load(repository, config_path)
    places = config_path, *(source.path for source in repository.sources)
    if places not in _loaded:
        _loaded[places] = pickle.dumps(_load(repository, config_path))
    return pickle.loads(_loaded[places])  # a copy, four times as fast as deepcopy's


def _merge_hydras_own_once(loader, defaults, repo):
    """Merge the settings of Hydra itself, which come first and are half of all, once for each choice of them."""
    if _changes(repo):
        return _merge(loader, defaults, repo)
    own = list(takewhile(lambda default: default.config_path.startswith("hydra/"), defaults))
    choice = tuple((default.config_path, default.package) for default in own)
    if choice not in _merged:
        _merged[choice] = pickle.dumps(_merge(loader, own, repo))
    merged = ConfigResult("", "", pickle.loads(_merged[choice]), {})
    return _merge(loader, [merged, *defaults[len(own) :]], repo)


def _load_or_take_merged(loader, default, repo):
    return default if isinstance(default, ConfigResult) else _load_single(loader, default, repo)


def _cache_for_a_configuration(caching, delegate):
    """Copy the list of sources, which a configuration may lengthen, not what is in them, which never changes."""
    caching.delegate, caching.cache = copy(delegate), {}


def _choices_where_asked(overrides, defaults, self_added):
    """Collect the choices so far only where a choice depends on them, not for each file."""
    asked = any(default.is_interpolation() for default in defaults)
    return _choices_so_far(overrides, defaults, self_added) if asked else {}


ConfigRepository.load_config = _load_once
ConfigLoaderImpl._compose_config_from_defaults_list = _merge_hydras_own_once
ConfigLoaderImpl._load_single_config = _load_or_take_merged
CachingConfigRepository.__init__ = _cache_for_a_configuration
base.parse = _utils.parse = cache(base.parse)  # of one interpolation, written in files that all runs share
version._get_version = cache(version._get_version)
defaults_list._create_interpolation_map = _choices_where_asked


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Start a worker more than there are cores: one often waits for processes that its test has started."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS", n_cores() + 1))


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Leave shapes unchecked while tests are only listed: the laws themselves make and ask every part again."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
