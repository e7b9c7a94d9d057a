"""Check what the file of a table holds, all leaves of which are text, and add what it takes over from another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_fl.errors import SettingError
from lightning_fl.run.config import choose
from lightning_fl.text import number

NEEDED = ("title", "rows", "columns")
RELATIONS = (">=", "<=", "within", "spread")

_Kind = tuple[str, Callable[[Any], bool]]  # what a value must be, and whether it is


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_share(value: Any) -> bool:
    return (share := number(value)) is not None and 0 <= share <= 1


def _is_truth(value: Any) -> bool:
    return _is_text(value) and value.lower() in _TRUTH


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_labelled(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(fits, value.values()))


def is_true(text: str) -> bool:
    """Read a truth value, which has been checked."""
    return text.lower() in _TRUTH[:3]


_TRUTH = ("true", "yes", "on", "false", "no", "off")
_TEXT: _Kind = "text", _is_text
_NUMBER: _Kind = "a number", lambda value: number(value) is not None
_NAMES: _Kind = "a list of names", lambda value: _are_texts(value) and bool(value)
_ANY: _Kind = "", lambda value: True  # looked at by itself
_BOOL: _Kind = "true or false", _is_truth
_PLACES: dict[str, _Kind] = {"rows": _NAMES, "columns": _NAMES}

_TABLE: dict[str, _Kind] = {
    **dict.fromkeys(("title", "source", "base", "value", "corner", "x", "note", "like"), _TEXT),
    "interval": _BOOL,
    **dict.fromkeys(("target", "chance"), _NUMBER),
    "seeds": ("a whole number above 0", lambda value: _is_text(value) and value.isdecimal() and int(value) > 0),
    "rows": (
        "overrides, with labels (LABEL: OVERRIDES) or as a list",
        lambda value: _are_texts(value) or _are_labelled(value, _is_text),
    ),
    "columns": (
        "overrides, with labels (LABEL: OVERRIDES) or as a list",
        lambda value: _are_texts(value) or _are_labelled(value, lambda entry: isinstance(entry, str | dict)),
    ),
    "reference": ("a row or a list of rows", lambda value: _is_text(value) or _are_texts(value)),
    "published": ("a list of numbers for each row", lambda value: _are_labelled(value, _are_texts)),
    **dict.fromkeys(("cells", "doubtful", "claims"), ("a list", lambda value: isinstance(value, list))),
}
_COLUMN: dict[str, _Kind] = {
    "overrides": _TEXT,
    "value": _TEXT,
    "worst": ("columns", lambda value: bool(value) and (_is_text(value) or _are_texts(value))),
}
_ADDED = ("rows", "columns", "published")
_INSIDE: dict[str, tuple[dict[str, _Kind], Sequence[str]]] = {
    "cells": (_PLACES | {"overrides": _TEXT}, ["overrides"]),
    "doubtful": (_PLACES | {"reason": _TEXT}, ["reason"]),
    "claims": (
        {"text": _TEXT, "left": _ANY, "relation": _TEXT, "right": _ANY}
        | {"margin": _NUMBER, "pair": _BOOL, "share": ("a share from 0 to 1", _is_share), "note": _TEXT},
        ["text", "left", "relation", "right"],
    ),
}


def check(given: Any, name: str) -> None:
    """Check the names and kinds of all that a file holds.

    Args:
        given: Its content.
        name: How the user spells the file.

    Raises:
        SettingError: If something is missing, unknown or of another kind.
    """
    _check(given, _TABLE, (), "a table")
    for key in () if "like" in given else NEEDED:
        if not given.get(key):
            raise SettingError(f"a table needs {', '.join(NEEDED)}, {name} has no {key}.")
    if isinstance(given.get("columns"), dict):
        for label, entry in given["columns"].items():
            entry = {} if _is_text(entry) else entry
            _check(entry, _COLUMN, (), f"column {label}")
            if "worst" in entry and len(entry) > 1:
                raise SettingError(f"column {label} is the worst of others and has no more than that, got {entry}.")
    for key, (kinds, needed) in _INSIDE.items():
        for entry in given.get(key, []):
            _check(entry, kinds, needed, key)
    for claim in given.get("claims", []):
        choose(claim["relation"], RELATIONS, "relation")
        _check(claim["left"], _PLACES, (), "left of claims")
        if claim["relation"] == "spread" or not isinstance(claim["right"], dict):
            if number(claim["right"]) is None:
                raise SettingError(f"right of claims needs cells or a number, got {claim['right']!r}.")
        else:
            others = claim["right"].get("rows") == "others"
            _check(claim["right"] | ({"rows": ["others"]} if others else {}), _PLACES, (), "right of claims")
            if is_true(claim.get("pair", "no")):
                rows, columns = ([len(claim[side].get(key, ())) for side in ("left", "right")] for key in _PLACES)
                if others or rows[0] != rows[1] or not rows[0] or columns[1] not in (0, columns[0]):
                    raise SettingError(
                        "claims with pair need as many rows on the left as on the right, and columns likewise if there "
                        "are any on the right."
                    )


def taken_over(given: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Add to a file what the other says that it is ``like``: see `lightning_fl.study.table`.

    Args:
        given: The file's content, checked.
        other: The other's, checked, in which everything stands.

    Returns:
        The content of such a file.
    """
    theirs, ours = ({key: labelled(part.get(key, {})) for key in _ADDED} for part in (other, given))
    rows, columns = (
        {label for label, text in ours[key].items() if theirs[key].get(label, text) != text} for key in _PLACES
    )  # that change
    blanks = ["-"] * len(ours["columns"].keys() - theirs["columns"].keys())
    theirs["published"] = {
        row: ["-" if label in columns else text for label, text in zip(theirs["columns"], texts, strict=False)] + blanks
        for row, texts in theirs["published"].items()
        if row not in rows
    }
    whole = other | given | {key: theirs[key] | ours[key] for key in _ADDED}
    return {key: value for key, value in whole.items() if key != "like"}


def labelled(given: Any) -> dict[str, Any]:
    """Label overrides that have no label by themselves."""
    return {text: text for text in given} if isinstance(given, list) else given


def _check(entry: Any, kinds: Mapping[str, _Kind], needed: Sequence[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise SettingError(f"{where} needs some of {', '.join(kinds)}, got {entry!r}.")
    for key, value in entry.items():
        what, fits = kinds[choose(key, kinds, f"entry of {where} called")]
        if not fits(value):
            raise SettingError(f"{key} of {where} needs {what}, got {value!r}.")
    for key in needed:
        if key not in entry:
            raise SettingError(f"each entry of {where} needs {key}, got {entry!r}.")
