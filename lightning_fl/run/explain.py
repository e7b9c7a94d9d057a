"""Explain the user's errors in a few lines; other errors keep their traceback."""

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lightning_fl.errors import RESUME, DataError, ProcessError, SettingError, install
from lightning_fl.run.config import GROUPS, choices, compose, file_of, no_such
from lightning_fl.run.kinds import takes
from lightning_fl.text import said

# The extras that bring Hydra's launchers.
_LAUNCHERS = {"ray": "ray", "submitit_slurm": "slurm", "joblib": "joblib"}
# What settings of other names are called here.
_MEANT = {"rounds": "trainer.max_steps", "epochs": "trainer.max_steps", "n_clients": "federation.n_clients"}
_MEANT |= dict.fromkeys(["lr", "learning_rate", "server.learning_rate"], "server.lr")
# Errors that a disk can raise about a file.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
_DISK |= {errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the user or the disk into one message and exit code 2; other errors keep their traceback.

    A command stopped by Ctrl-C ends with exit code 130, by SIGTERM with 143.
    """
    _ready_streams()
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        sys.exit(143 if "SIGTERM" in str(stop) else 130)
    except SystemExit as stop:
        if stop.code == 1 and isinstance(stop.__context__, KeyboardInterrupt):  # Lightning turns it into 1
            sys.exit(130)
        raise
    except BrokenPipeError:  # the reader closed the pipe, as in reproduce.py | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(f"Error: {message}", file=sys.stderr)
        sys.exit(2)


def _ready_streams() -> None:
    """Let stdout and stderr take any text: a closed one leads nowhere, and ASCII escapes other letters."""
    for number, name in [(1, "stdout"), (2, "stderr")]:
        stream = getattr(sys, name)
        if stream is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)  # else the next file would get its number, and its text
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _stdout_fails() -> bool:
    """Whether stdout cannot be written, as to a full disk; what waits there is dropped then."""
    try:
        print(flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def explain(error: Exception, arguments: Sequence[str] | None = None) -> str | None:
    """Say in a few lines what is wrong with ``arguments`` (by default the command line's).

    None for an error that is not the user's.
    """
    cause: BaseException = error
    while isinstance(cause, HydraException | OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, SettingError | DataError):
        part, message = getattr(cause, "part", None), str(cause)
        named = part is None or re.search(rf"^{part}('s| needs)\b|\b{part}[.=]", message)
        return message if named else f"{part}: {message}"
    if isinstance(cause, ProcessError):
        return f"{cause}; {RESUME}."
    if isinstance(cause, OSError) and cause.errno in _DISK:
        where = cause.filename or ("standard output" if _stdout_fails() else "a file")
        return f"{where}: {cause.strerror}; fix that, then run this again."
    missing = re.search(r"Could not (override|delete from config\.) '([^']+)'", str(error))
    if missing:
        return _no_setting(missing[2], sys.argv[1:] if arguments is None else arguments, missing[1] != "override")
    launcher = re.search(r"Could not find 'hydra/launcher/(\w+)'", str(error))
    if launcher:
        extra = _LAUNCHERS.get(launcher[1])
        advice = install(extra) if extra else f"choose one of {', '.join(_LAUNCHERS)}"
        return f"there is no launcher {launcher[1]} here; {advice}."
    if isinstance(cause, OverrideParseException):
        return (
            f"settings are written NAME=VALUE, without blanks around =, lists as [1,2], text with brackets, commas or "
            f"quotes inside quotes (\"NAME='a, b'\"), got {cause.override!r}."
        )
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        value = f" in {cause.value!r}" if isinstance(getattr(cause, "value", None), str) else ""
        return f"{cause.full_key} cannot be read: {str(cause.msg).splitlines()[0]}{value}; correct its value."
    if isinstance(error, HydraException | OmegaConfBaseException):
        return " ".join(str(error).split("\nConfig search path")[0].split()) or type(cause).__name__
    if isinstance(error, MemoryError) or re.search("can't allocate memory|out of memory", str(error)):  # a GPU's
        return f"there is not enough memory ({said(error)})."
    if isinstance(error, BrokenExecutor):
        return "a worker was killed, as happens where memory runs out; use fewer of them; what is finished stays."
    return None


def _no_setting(key: str, arguments: Sequence[str], removed: bool) -> str:
    """List the settings that are valid in place of ``key``, with the groups that the arguments choose.

    Of a setting to be removed, say that it is null if it is: Hydra treats that as absent.
    """
    if key in _MEANT:
        return f"there is no setting {key}; did you mean {_MEANT[key]}?"
    chosen = [argument for argument in arguments if re.match(rf"({'|'.join(GROUPS)})=[^,]+$", argument)]
    node: Any = compose(chosen)
    *path, name = key.split(".")
    if path and path[0] in GROUPS and not node.get(path[0]):
        return (
            f"{key} needs a choice of {path[0]} that has settings, got none; choose one by {path[0]}=..., valid: "
            f"{', '.join(choices(path[0]))}."
        )
    found: list[str] = []
    for part in path:
        inner = node.get(part)
        if not isinstance(inner, DictConfig):
            break
        node = inner
        found.append(part)
    else:
        if removed and name in node:
            return f"{key} is null, so that ~{key} has nothing to remove; leave it out, or give a value: {key}=VALUE."
        if path and takes(node.get("_target_"), name):
            given = next((argument for argument in arguments if argument.startswith(f"{key}=")), f"{key}=VALUE")
            return f"{key} is not in the configuration, though its class takes it; add it: +{given}"
    valid = {*node, *(() if path else GROUPS)} - {"_target_", "_partial_"}
    inside = [
        part for part, inner in node.items_ex(resolve=False) if path and isinstance(inner, DictConfig) and name in inner
    ]
    if inside:
        valid = {f"{part}.{name}" for part in inside} | valid
        return (
            f"there is no setting {key}; did you mean {'.'.join([*found, str(inside[0]), name])}? valid: "
            f"{', '.join(sorted(map(str, valid)))}."
        )
    message = no_such("setting", key, sorted(map(str, valid)), like=name)
    if len(path) != 1 or path[0] not in GROUPS or "did you mean" in message:
        return message
    has = re.compile(rf"^{re.escape(name)}:", re.MULTILINE)
    others = [f"{path[0]}={of}" for of in choices(path[0]) if has.search(file_of(path[0], of).read_text("utf-8"))]
    return f"{message} {name} is a setting of {', '.join(others)}." if others else message
