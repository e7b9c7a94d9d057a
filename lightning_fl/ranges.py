"""Ranges of settings, said once: as annotations of a constructor's arguments, which every construction checks.

    class Mine(Aggregator):
        def __init__(self, f: NonNegativeInt, radius: PositiveFloat = 1.0, norm: Literal["l2", "l1"] = "l2"): ...

The words are the library annotated-types'.  A number with a declared range is finite, unless a closed end of the range
is infinite: ``Annotated[float, Ge(-inf), Le(0)]``.  A plain ``int`` or ``float`` says the type alone.  A text says in
words what the setting is: ``Annotated[int | float, "a share or a count"]``.
"""

import collections.abc
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from inspect import Parameter, signature
from math import inf, isfinite
from numbers import Integral, Real
from os import PathLike
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, SupportsIndex, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, IsFinite, Le, Lt

from lightning_fl.errors import SettingError, check_choice, shown

NonNegativeInt = Annotated[int, Ge(0)]
PositiveInt = Annotated[int, Ge(1)]
FiniteFloat = IsFinite[float]
NonNegativeFloat = Annotated[float, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Gt(0), Lt(1)]

_F = TypeVar("_F", bound=Callable[..., Any])

NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
NAMES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
NAMES |= {NoneType: "null", SupportsIndex: "a whole number"}
LISTS = (list, tuple, Sequence, Collection, Iterable)


class Checked:
    """A part whose settings are checked whenever one is made, by its class's and its bases' own annotations.

    >>> class Mine(Checked):
    ...     def __init__(self, f: NonNegativeInt, share: Share = 0.5): ...
    >>> Mine(-1)
    Traceback (most recent call last):
    lightning_fl.errors.SettingError: mine needs f >= 0, got -1.
    >>> Mine(1, share=1.5)
    Traceback (most recent call last):
    lightning_fl.errors.SettingError: mine needs 0 <= share <= 1, got 1.5; the default is 0.5.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    @classmethod
    def spelled(cls) -> str:
        """The part's name in errors: the class's as a file would spell it."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


def checked(function: _F) -> _F:
    """Check a function's arguments at every call, as `Checked` does a constructor's.

    >>> @checked
    ... def decay(factor: Fraction): ...
    >>> decay(1.0)
    Traceback (most recent call last):
    lightning_fl.errors.SettingError: decay needs 0 < factor < 1, got 1.0.
    """

    @wraps(function)
    def call(*args: Any, **settings: Any) -> Any:
        hints, taken = type_hints(function), signature(function)
        try:
            given = taken.bind(*args, **settings).arguments
        except TypeError:  # which the call itself will say
            given = {}
        who = args[0].spelled() if given and function.__name__ == "__init__" else function.__name__
        for name, value in given.items():
            if name in hints and taken.parameters[name].kind in NAMED:
                _check(who, name, value, hints[name], taken.parameters[name].default)
        return function(*args, **settings)

    return call  # type: ignore[return-value]


@cache
def type_hints(function: Any) -> dict[str, Any]:
    """Find the types of a function's arguments, ranges included; {} where they cannot be told."""
    for known in (None, {**vars(typing), **vars(collections.abc)}):
        with suppress(TypeError, NameError):  # a type that is only imported for type checkers
            return get_type_hints(function, None, known, include_extras=True)
    return {}


def options(hint: Any) -> tuple[Any, ...]:
    """List the types that a type is a choice of.

    >>> options(int | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    if get_origin(hint) is Annotated:
        return options(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of a type, ranges and words aside.

    NumPy's and PyTorch's numbers are numbers, true and false are none, and a mapping with a ``_target_`` may become
    anything.
    """
    value, origin, inner = _plain(value), get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or (isinstance(value, dict) and "_target_" in value):
        return True
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, tuple(map(type, inner)))
    if hint in (int, float, SupportsIndex):
        return isinstance(value, Real if hint is float else Integral) and not isinstance(value, bool)
    kind = (str | PathLike) if hint is str else origin or hint
    if isinstance(value, Iterator):  # to look at it would use it up
        return kind in (Any, Iterable)
    if kind in LISTS:
        items = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        return items and all(fits(one, inner[0] if inner else Any) for one in value)
    with suppress(TypeError):  # what isinstance does not take
        return isinstance(value, kind) if isinstance(kind, type | UnionType) else kind is not Callable
    return True


def describe(hint: Any) -> str:
    """Name the kinds of values that YAML can hold and a type admits.

    >>> describe(NonNegativeInt | None)
    'a whole number or null'
    >>> describe(Annotated[int | float, "a share or a count"])
    'a share or a count'
    """
    return " or ".join(_kinds(hint)) or getattr(hint, "__name__", str(hint))


def _kinds(hint: Any) -> list[str]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return [text for text in inner[1:] if isinstance(text, str)] or _kinds(inner[0])
    if origin in (Union, UnionType):
        plain = [one for one in inner if one in NAMES and one is not NoneType]  # which a file can hold, unlike a Tensor
        held = [one for one in inner if not (plain and isinstance(one, type)) or one in NAMES]
        return list(dict.fromkeys(name for one in held for name in _kinds(one)))
    if origin is Literal:
        return list(dict.fromkeys(NAMES[type(one)] for one in inner))
    if hint in NAMES:
        return [NAMES[hint]]
    if (origin or hint) in LISTS:
        each = " or ".join(_kinds(inner[0])) if inner else ""
        return [f"a list ({each} each)" if each else "a list"]
    if (origin or hint) in (dict, Mapping):
        return ["settings"]
    return [hint.__name__] if isinstance(hint, type) and hint not in (Any, object) else []


def _plain(value: Any) -> Any:
    """Take the number out of NumPy's and PyTorch's."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _check(who: str, name: str, value: Any, hint: Any, default: Any) -> None:
    value, origin, inner = _plain(value), get_origin(hint), get_args(hint)
    if not fits(value, hint):
        advice = "; round it" if isinstance(value, float) else ""
        raise SettingError(f"{who} needs {describe(hint)} as {name}, got {shown(value)}{advice}.")
    if origin in (Union, UnionType):
        _check(who, name, value, next(one for one in inner if fits(value, one)), default)
    elif origin is Literal:
        check_choice(f"{who}'s {name}", value, inner)
    elif origin in LISTS and inner and not isinstance(value, Iterator):
        for one in value:
            _check(who, name, one, inner[0], Parameter.empty)
    elif origin is Annotated:
        _check(who, name, value, inner[0], default)
        if need := _beyond(name, value, inner[1:]):
            advice = "" if default in (None, Parameter.empty) else f"; the default is {default}"
            raise SettingError(f"{who} needs {need}, got {value}{advice}.")


def _beyond(name: str, value: Any, bounds: tuple[Any, ...]) -> str | None:
    """Say which range a value is outside of; None: inside, or it is no number."""
    if not hasattr(value, "__float__") or hasattr(value, "shape"):  # an array is no number
        return None
    inside, finite, low, high = True, isfinite(value), "", ""
    for bound in bounds:
        match bound:
            case Ge(end):
                inside, finite = inside and value >= end, finite or value == end
                low = f"{end} <= " if end != -inf else ""
            case Gt(end):
                inside, low = inside and value > end, f"{end} < "
            case Le(end):
                inside, finite, high = inside and value <= end, finite or value == end, f" <= {end}"
            case Lt(end):
                inside, high = inside and value < end, f" < {end}"
    if inside and finite:
        return None
    if low and not high:  # "f >= 0" rather than "0 <= f"
        end, sign, _ = low.split(" ")
        low, high = "", f" {'>=' if sign == '<=' else '>'} {end}"
    return f"{'' if finite else 'a finite '}{low}{name}{high}"
