"""Read the user's files, with errors that name file and line."""

import bz2
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from PIL import Image

from lightning_fl.errors import DataError


def lines(path: Path) -> Iterator[str]:
    """Iterate over the lines of a UTF-8 file, plain or packed as ``.bz2``.

    Raises:
        DataError: If the file is missing, damaged or in another encoding.
    """
    number = 0
    try:
        with bz2.open(path) if path.suffix == ".bz2" else path.open("rb") as file:
            for line in file:
                number += 1
                yield (line if number > 1 else line.removeprefix(BOM_UTF8)).decode()  # spreadsheets begin with it
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: is not in UTF-8 ({error.reason}, byte {error.start + 1}).") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} is damaged after line {number}: {error}.") from error


def picture(path: str) -> Image.Image:
    """Read an image file in colours of 8 bits.

    Raises:
        DataError: If it is damaged or has more bits, which would all turn white.
    """
    try:
        with Image.open(path) as image:
            check_mode(image, path)
            return image.convert("RGB")
    except Image.DecompressionBombError as error:
        raise DataError(f"{path} is larger than pictures are: {error}.") from error
    except (OSError, SyntaxError, ValueError) as error:  # PIL raises all three on damaged files
        raise DataError(f"{path} is not an image or is cut short: {error}.") from error


def check_mode(image: Image.Image, what: str) -> None:
    """Check that an image has 8 bits per colour.

    Raises:
        DataError: If it has more; ``what`` names it.
    """
    if image.mode.startswith(("I", "F")):
        raise DataError(
            f"{what} must be an image with 8 bits per colour, got mode {image.mode}; convert it, of 16 bits by "
            f"numpy.asarray(image) // 257."
        )


def need_every_class(path: Path, labels: Collection[int], classes: Sequence[object]) -> None:
    """Check that a file has a sample of every class.

    Raises:
        DataError: If it has not.
    """
    missing = sorted(set(range(len(classes))) - set(labels))
    if missing:
        names = ", ".join(str(classes[label]) for label in missing)
        raise DataError(f"{path} needs samples of all {len(classes)} classes, got none of {names}.")
