"""The commands of ``lightning-fl``: each module has a ``main``."""

import os
import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import Error, rmtree
from tempfile import TemporaryFile

from lightning_fl.errors import DataError, SettingError
from lightning_fl.files import explained
from lightning_fl.run.config import spell

os.environ["MPLBACKEND"] = "agg"  # commands open no window; a notebook's own backend may not be installed here


def explained_by(documentation: str | None) -> str:
    """Take a command's documentation, with its examples spelled the way the running command was started."""
    return re.sub(r"python scripts/(\w+)\.py", lambda found: spell(found[1]), documentation or "")


def parser_of(documentation: str | None) -> ArgumentParser:
    """Make the parser of a command, which shows its documentation and takes no abbreviated options."""
    description, layout = explained_by(documentation), RawDescriptionHelpFormatter
    return ArgumentParser(description=description, formatter_class=layout, allow_abbrev=False)


def out_folder(out: str | Path) -> Path:
    """Check where a command is to write, before it computes anything.

    Raises:
        SettingError: If a file is there.
        DataError: If nothing can be written there.
    """
    folder = Path(out)
    if folder.is_file():
        raise SettingError(f"--out needs a folder, got the file {out}.")
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    with explained(folder), TemporaryFile(dir=there):
        return folder


@contextmanager
def whole(*folders: Path) -> Iterator[None]:
    """Write new folders, or none of them.

    Raises:
        DataError: If they cannot be written.
    """
    try:
        yield
    except OSError as error:
        for folder in folders:
            rmtree(folder, ignore_errors=True)
        why = error.args[0][0][2].split(": ")[0] if isinstance(error, Error) else error.strerror or error
        raise DataError(f"{folders[0]} cannot be written: {why}; nothing is left of it.") from error
