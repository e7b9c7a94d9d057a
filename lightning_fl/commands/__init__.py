"""The commands of ``lightning-fl``: each module has a ``main``."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from lightning_fl.errors import SettingError


def parser_of(description: str | None) -> ArgumentParser:
    """Make the parser of a command, which shows the description as it stands and takes no abbreviated options."""
    return ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False)


def out_folder(out: str | Path) -> Path:
    """Check where a command is to write.

    Raises:
        SettingError: If a file is there.
    """
    if Path(out).is_file():
        raise SettingError(f"--out needs a folder, got the file {out}.")
    return Path(out)
