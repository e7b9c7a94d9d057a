"""The errors a user can cause; everything else that is raised is a bug."""

from collections.abc import Collection


class SettingError(ValueError):
    """A setting is out of range or does not fit the others: who needs what, got what, what to do."""


class DivergedError(SettingError):
    """Nothing finite is left to go on with; a run that meets it has diverged and stops."""


class DataError(RuntimeError):
    """A file is missing, corrupt or not what it should be, or cannot be written."""


def check_choice(what: str, value: object, choices: Collection[str]) -> None:
    """Check a setting that is a word.

    Raises:
        SettingError: If the value is none of the choices; ``what`` names the setting in the message.
    """
    if value not in choices:
        raise SettingError(f"{what} must be one of {', '.join(choices)}, got {value!r}.")
