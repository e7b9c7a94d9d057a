"""Words and names for terminals and documents."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any


def many(number: int, word: str) -> str:
    """Count things in words.

    >>> many(1, "round"), many(0, "run")
    ('1 round', '0 runs')
    """
    return f"{number} {word}{'s' * (number != 1)}"


def meant(name: str, known: Iterable[str]) -> str:
    """End a message that refuses a name, with the known one that is meant if one is near.

    >>> meant("Adamm", ["SGD", "Adam"]), meant("Adamm", ["SGD"])
    ('; did you mean Adam?', '.')
    """
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else "."


def class_name(z: int, classes: Sequence[str] | None) -> str:
    """Name a class where the data have names, as much of it as fits beside a line; otherwise say its number.

    >>> class_name(2, None), class_name(0, ["a very long name of a class"])
    ('class 2', 'a very long name…')
    """
    if classes is None:
        return f"class {z}"
    return classes[z] if len(classes[z]) <= 17 else f"{classes[z][:16]}…"


def number(text: Any) -> float | None:
    """Read a number; None if it is none.

    >>> number("1e-3"), number("x"), number(None)
    (0.001, None, None)
    """
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def shown(folder: str | Path) -> str:
    """Name a folder relative to the working folder, if it is inside."""
    path = Path(folder).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def plain(text: str) -> str:
    r"""Keep a name to one line that steers no terminal: names of settings and files may be somebody else's.

    >>> plain("\x1b[2Ja\nb")
    ' [2Ja b'
    """
    return "".join(letter if letter.isprintable() else " " for letter in text)


def said(error: BaseException, named: bool = False) -> str:
    r"""Write what an error says on one line, with the name of its class where asked; that alone if it says nothing.

    >>> said(ValueError("a\n  b")), said(ValueError("a"), named=True), said(KeyError())
    ('a b', 'ValueError: a', 'KeyError')
    """
    name, text = type(error).__name__, " ".join(str(error).split())
    return f"{name}: {text}" if text and named else text or name


def for_csv(value: Any) -> Any:
    """Mark text that a spreadsheet would run as a formula as text.

    >>> for_csv("=1+2"), for_csv("-1.5"), for_csv("-x"), for_csv(-1.5)
    ("'=1+2", '-1.5', "'-x", -1.5)
    """
    if not isinstance(value, str):
        return value
    value = plain(value)
    return value if re.fullmatch(r"(?![=+@＝＋－＠-]).*|-[0-9.]+(e[-+]?[0-9]+)?", value) else f"'{value}"


def for_hydra(value: object) -> str:
    r"""Quote the value of a setting on Hydra's command line, whatever letters it has.

    >>> print(for_hydra("Anna's"))
    'Anna\'s'
    """
    return "'" + str(value).replace("'", r"\'") + "'"


def without_tags(markdown: str) -> str:
    """Show HTML in Markdown as text, but for line breaks and comments that end in their line; draw no pictures.

    >>> without_tags("a < 1<br><script><!-- hides"), without_tags("![x](http://y)")
    ('a < 1<br>&lt;script>&lt;!-- hides', '!&#91;x](http://y)')
    """
    return re.sub(r"<(?=[A-Za-z/!?])(?!br>|!-- [^\n]*-->)", "&lt;", markdown).replace("![", "!&#91;")
