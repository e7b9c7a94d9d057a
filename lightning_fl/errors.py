"""The errors that a user can cause; any other error is a bug."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from math import isfinite
from numbers import Integral, Number


class SettingError(ValueError):
    """A setting is out of range or does not fit the others: who needs what, got what, what to do."""

    part: str | None = None
    """The part of a run whose settings they are, such as "aggregator", where that is known."""


class MissingError(SettingError):
    """A setting needs what is missing on this machine, and only there: a package, a folder, room on a disk."""


class DivergedError(SettingError):
    """Nothing finite is left to go on with; a run that meets it has diverged and stops."""


class DataError(RuntimeError):
    """A file is missing, corrupt or not what it should be, or cannot be written."""


# What to do when a run over several processes has ended too early.
RESUME = "repeat the command with ckpt_path=auto and hydra.run.dir=FOLDER to continue from the last checkpoint"


class ProcessError(RuntimeError):
    """Another process of the run has been lost."""


def install(extra: str) -> str:
    """Say how to get the packages of an extra.

    >>> install("ray")
    'pip install "lightning-fl[ray]"'
    """
    return f'pip install "lightning-fl[{extra}]"'


@contextmanager
def concerning(part: str) -> Iterator[None]:
    """Note in a `SettingError` which part of a run it is about; a part noted further inside is kept."""
    try:
        yield
    except SettingError as error:
        error.part = error.part or part
        raise


def check_finite(what: str, value: float) -> None:
    """Check a setting that may be any number except nan and inf.

    Raises:
        SettingError: If it is nan or inf; ``what`` names the setting in the message.
    """
    if not isfinite(value):
        raise SettingError(f"{what} must be a finite number, got {value}.")


def check_whole(what: str, value: object, least: int) -> None:
    """Check a setting that is a whole number.

    Raises:
        SettingError: If it is not, or below ``least``; ``what`` names the setting in the message.
    """
    if not isinstance(value, Integral) or value < least:
        raise SettingError(f"{what} must be a whole number of at least {least}, got {shown(value)}.")


def shown(value: object) -> str:
    """Say what an argument is: itself where it is short, otherwise its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}; write {value.__name__}(...)"
    return repr(value) if value is None or isinstance(value, str | Number) else type(value).__name__


def check_instance(what: str, value: object, kind: type, example: str) -> None:
    """Check that an argument is an object of a class; the class itself, without its brackets, is not.

    Raises:
        SettingError: If it is not; ``what`` names the argument in the message, and ``example`` shows one.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise SettingError(f"{what} must be {article} {kind.__name__} such as {example}, got {shown(value)}.")


def check_choice(what: str, value: object, choices: Collection[object]) -> None:
    """Check a setting that is a word.

    Raises:
        SettingError: If the value is none of the choices; ``what`` names the setting in the message.
    """
    if value not in choices:
        raise SettingError(f"{what} must be one of {', '.join(map(str, choices))}, got {value!r}.")
