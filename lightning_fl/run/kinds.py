"""Check each part's class against the place that takes it, and each setting's type against the class's signature.

A run's settings may be somebody else's, and a ``_target_`` names any function of any package: nothing is called before
all of them have been looked at.
"""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from inspect import isroutine
from pkgutil import resolve_name
from typing import Any, get_args, get_origin

from hydra.utils import get_object

from lightning_fl.arguments import is_open, named, takers
from lightning_fl.errors import SettingError
from lightning_fl.ranges import LISTS, NAMES, describe, fits, options, type_hints
from lightning_fl.run.config import no_such
from lightning_fl.run.identity import own_source
from lightning_fl.text import said

# What each group takes, by name: what they need is imported only once a run has some.
_PLACES = {
    "adversary": "lightning_fl.adversary.base.Adversary",
    "aggregator": "lightning_fl.aggregator.base.Aggregator",
    "callbacks": "pytorch_lightning.Callback",
    "client": "lightning_fl.client.base.Client",
    "data": "lightning_fl.data.base.FederatedDataModule",
    "federation": "lightning_fl.federation.Federation",
    "logger": "pytorch_lightning.loggers.Logger",
    "loss": "torch.nn.Module",
    "model": "torch.nn.Module",
    "partition": "lightning_fl.partition.base.Partition",
    "schedule": "torch.optim.lr_scheduler.LRScheduler",
    "server": "torch.optim.Optimizer",
    "trainer": "pytorch_lightning.Trainer",
}
_COMPLETED = ("schedule", "server")  # which get the parameters or the optimizer later
_HYDRAS = {"_target_": str, "_partial_": bool, "_convert_": str, "_recursive_": bool}
_OF_A_RUN = {"model": {"start": str | None, "buffers": str | None}}  # what a run does with a part, whatever its class
_LARGEST = 2**63
_FRAMEWORKS = ("torch.", "pytorch_lightning.")  # these accept nan and inf silently; our own parts check for themselves


def check_kinds(node: Mapping[str, Any], path: str, hint: Any = None) -> None:
    """Check that a part is what its place takes, has every setting it is given, and that each has the right type.

    Args:
        node: The part's settings, with a ``_target_``; parts inside it are checked, too.
        path: Its full name, such as "aggregator.rule".
        hint: The type that the place takes.  None: what the group takes.

    Raises:
        SettingError: If it makes something else, or a setting is unknown or has another type.
    """
    if "_target_" not in node:
        raise SettingError(f"{path} needs a class, got {dict(node)!r}; write _target_: MODULE.CLASS into its file.")
    target = str(node["_target_"])
    group = "callbacks" if path.startswith("trainer.callbacks") else path.partition(".")[0]
    taken = _PLACES.get(group) if hint is None else _named(hint)
    if target.partition(".")[0] in sys.stdlib_module_names:  # importing some of them does something
        raise SettingError(_other(path, taken, target))
    thing, hints, names, opened = _settings(target, path)
    if hint is None and taken is not None:
        hint = resolve_name(taken)
        if node.get("_partial_") is True and group not in _COMPLETED:
            raise SettingError(f"{path} is made as a whole, got _partial_=true; leave it out.")
    if hint is not None and not _makes(thing, hint):
        raise SettingError(_other(path, taken, target))
    if not (isinstance(thing, type) or target.startswith("lightning_fl.") or own_source(target)):
        raise SettingError(
            f"{path} needs a class, or a function of your project, got {target}; write a function that calls it."
        )
    names = names[1:] if node.get("_partial_") is True else names  # the first argument comes when it is called
    beside: dict[str, Any] = _HYDRAS | _OF_A_RUN.get(path, {})
    for key, value in node.items():
        where = f"{path}.{key}"
        if key in beside:
            check_kind(where, value, beside[key])
            continue
        if key not in names and not opened:
            raise SettingError(f"{no_such('setting', where, sorted(names), like=key)} {path} is {target}.")
        _check_inside(where, value, hints.get(key, Any))
        if not _is_part(value):
            check_kind(where, value, hints.get(key, Any), finite=target.startswith(_FRAMEWORKS))


def _check_inside(where: str, value: Any, hint: Any) -> None:
    """Check the parts inside a setting's value."""
    if _is_part(value):
        check_kinds(value, where, hint)
    elif isinstance(value, dict | list):
        inner = next((get_args(kind)[0] for kind in options(hint) if get_origin(kind) in LISTS), Any)
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            _check_inside(f"{where}.{key}" if isinstance(value, dict) else f"{where}[{key}]", one, inner)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and "_target_" in value


def _named(hint: Any) -> str:
    kinds = [kind for kind in options(hint) if isinstance(kind, type) and kind not in (*NAMES, object, Any)]
    return " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)


def _other(path: str, taken: str | None, target: str) -> str:
    if not taken:
        return f"{path} takes no part that is made, got {target}; a class that takes one says which by a type hint."
    return f"{path} needs a class made from {taken}, got {target}; choose another."


def _makes(thing: Any, hint: Any) -> bool:
    """Tell whether a class is, or a function by its type hint gives, what a place takes; what takes anything, no."""
    made = thing if isinstance(thing, type) else type_hints(thing).get("return") if isroutine(thing) else None
    for kind in options(hint):
        if (get_origin(kind) or kind) is Callable:
            called = isinstance(made, type) and any("__call__" in vars(owner) for owner in made.__mro__)
            right = called or get_origin(made) is Callable
        else:
            known = isinstance(kind, type) and kind not in (object, Any)
            right = known and isinstance(made, type) and issubclass(made, kind)
        if right:
            return True
    return False


def check_kind(where: str, value: Any, hint: Any, finite: bool = False) -> None:
    """Check one setting's type.

    Args:
        where: Its name.
        value: Its value.
        hint: The type that a class wants.
        finite: Whether nan and inf are refused.

    Raises:
        SettingError: If it has another type.
    """
    if value == "???":
        raise SettingError(f"{where} has no default; give it a value ({where}=...).")
    if not fits(value, hint):
        raise SettingError(f"{where} needs {describe(hint)}, got {value!r}.")
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and abs(number) >= _LARGEST:
            raise SettingError(f"{where} needs a whole number of at most 63 bits, got {number}.")
        if finite and isinstance(number, float) and not math.isfinite(number):
            raise SettingError(f"{where} needs a finite number, got {number}.")


def takes(target: object, name: str) -> bool:
    """Tell whether a class or function, given by its name, takes a setting of this name."""
    try:
        return name in _settings(str(target), "")[2]
    except SettingError:  # no such class
        return False


@cache
def _settings(target: str, path: str) -> tuple[Any, dict[str, Any], list[str], bool]:
    """Get a class or function, the types and names of its arguments, and whether it takes any others."""
    try:
        thing = resolve_name(target)
        if ":" in target or get_object(target) != thing:  # which is how Hydra finds it
            raise ValueError("it is written MODULE.CLASS, and stands for one thing")
    except Exception as error:  # importing the user's module may raise anything
        absent = isinstance(error, ModuleNotFoundError) and f"{target}.".startswith(f"{error.name}.")
        if absent or isinstance(error, AttributeError | ValueError):
            message = f"{path}._target_ needs the name of a class, got {target} ({said(error, named=True)})."
        else:
            message = f"{path}._target_ is {target}, which cannot be imported ({said(error, named=True)})."
        raise SettingError(message) from error
    hints: dict[str, Any] = {}
    names: list[str] = []
    opened = True
    with suppress(TypeError, ValueError):  # no signature to check against
        for function, parameters in takers(thing):
            hints = type_hints(function) | hints
            names += [parameter.name for parameter in named(parameters)]
            opened = is_open(parameters)
    return thing, hints, names, opened
