"""Check each setting's type against the signature of the class that takes it."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name
from types import NoneType, UnionType
from typing import Any, Literal, SupportsIndex, TypeVar, Union, get_args, get_origin, get_type_hints

from lightning_fl.arguments import is_open, named, takers
from lightning_fl.errors import SettingError
from lightning_fl.run.config import no_such

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null"}
_NAMES |= {SupportsIndex: "a whole number"}
_HYDRAS = {"_target_": str, "_partial_": bool, "_convert_": str, "_recursive_": bool}
_LARGEST = 2**63
_LISTS = (list, tuple, Sequence, Collection, Iterable)
_FRAMEWORKS = ("torch.", "pytorch_lightning.")  # these accept nan and inf silently; our own parts check for themselves


def check_kinds(node: Mapping[str, Any], path: str) -> None:
    """Check that a part has every setting it is given, and that each has the right type.

    Args:
        node: The part's settings, with a ``_target_``; parts inside it are checked, too.
        path: Its full name, such as "aggregator.rule".

    Raises:
        SettingError: If a setting is unknown or has another type.
    """
    target = str(node["_target_"])
    hints, names, opened = _settings(target, path)
    names = names[1:] if node.get("_partial_") is True else names  # the first argument comes when it is called
    for key, value in node.items():
        where = f"{path}.{key}"
        if key in _HYDRAS:
            check_kind(where, value, _HYDRAS[key])
            continue
        if key not in names and not opened:
            raise SettingError(f"{no_such('setting', where, sorted(names), like=key)} {path} is {target}.")
        if _is_part(value):
            check_kinds(value, where)
        else:
            check_kind(where, value, hints.get(key, Any), finite=target.startswith(_FRAMEWORKS))
            for i, part in enumerate(value if isinstance(value, list) else []):
                if _is_part(part):
                    check_kinds(part, f"{where}[{i}]")


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and "_target_" in value


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
    if not _fits(value, hint):
        raise SettingError(
            f"{where} needs {' or '.join(_describe(hint)) or getattr(hint, '__name__', hint)}, got {value!r}."
        )
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and abs(number) >= _LARGEST:
            raise SettingError(f"{where} needs a whole number of at most 63 bits, got {number}.")
        if finite and isinstance(number, float) and not math.isfinite(number):
            raise SettingError(f"{where} needs a finite number, got {number}.")


def takes(target: object, name: str) -> bool:
    """Tell whether a class or function, given by its name, takes a setting of this name."""
    try:
        return name in _settings(str(target), "")[1]
    except SettingError:  # no such class
        return False


@cache
def _settings(target: str, path: str) -> tuple[dict[str, Any], list[str], bool]:
    """Get the types and names of the arguments of a class or function, and whether it takes any others."""
    try:
        thing = resolve_name(target)
    except Exception as error:  # importing the user's module may raise anything
        absent = isinstance(error, ModuleNotFoundError) and f"{target}.".startswith(f"{error.name}.")
        if absent or isinstance(error, AttributeError | ValueError):
            message = f"{path}._target_ needs the name of a class, got {target} ({_one_line(error)})."
        else:
            message = f"{path}._target_ is {target}, which cannot be imported ({_one_line(error)})."
        raise SettingError(message) from error
    hints: dict[str, Any] = {}
    names: list[str] = []
    opened = True
    with suppress(TypeError, ValueError):  # no signature to check against
        for function, parameters in takers(thing):
            hints = _hints(function) | hints
            names += [parameter.name for parameter in named(parameters)]
            opened = is_open(parameters)
    return hints, names, opened


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (TypeError, NameError):  # a type that is only imported for type checkers
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a value that YAML can hold fits a type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if _is_part(value) and isinstance(hint, type) and hint not in _NAMES:  # an element of a list
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:  # the part itself checks which words are valid
        return isinstance(value, tuple(map(type, inner)))
    if hint in (int, float, SupportsIndex):
        return isinstance(value, int | float if hint is float else int) and not isinstance(value, bool)
    kind = origin or hint
    if kind in _LISTS:
        return isinstance(value, list) and all(_fits(v, inner[0] if inner else Any) for v in value)
    return isinstance(value, kind) if isinstance(kind, type) else kind is not Callable


def _describe(hint: Any) -> list[str]:
    """Name the kinds of values that YAML can hold and a type admits."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return list(dict.fromkeys(name for one in inner for name in _describe(one)))
    if origin is Literal:
        return list(dict.fromkeys(_NAMES[type(one)] for one in inner))
    if hint in _NAMES:
        return [_NAMES[hint]]
    kind = origin or hint
    if kind in _LISTS:
        each = " or ".join(_describe(inner[0])) if inner else ""
        return [f"a list ({each} each)" if each else "a list"]
    return ["settings"] if kind in (dict, Mapping) else []


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
