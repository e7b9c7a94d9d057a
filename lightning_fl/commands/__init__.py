"""The commands of ``lightning-fl``: each module has a ``main``."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter


def parser_of(description: str | None) -> ArgumentParser:
    """Make the parser of a command, which shows the description as it stands and takes no abbreviated options."""
    return ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False)
