"""Write the README's table of everything in conf/: what each file says of itself in its first comment.

python scripts/catalogue.py
"""

import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {
    "aggregator": "rules",
    "adversary": "attacks",
    "method": "methods",
    "client": "clients",
    "partition": "partitions",
    "data": "data sets",
    "model": "models",
    "server": "servers",
    "schedule": "schedules",
    "logger": "loggers",
    "experiment": "experiments",
}
_PLACE = re.compile(r"(?<=<!-- catalogue -->\n).*(?=<!-- /catalogue -->)", re.DOTALL)


def sentence(path: Path) -> str:
    """What a file of conf says of itself: the first sentence of its first comment, "" if it has none."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    comment = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line[2:].strip())
    text = " ".join(comment)
    end = re.search(r"\.(?=  | [A-Z]|$)", text)
    return text[: end.end()] if end else ""


def catalogue() -> str:
    """The README's part: how many there are of each, and a table of all."""
    files = {group: sorted((ROOT / "conf" / group).glob("*.yaml")) for group in GROUPS}
    counts = [f"{len(paths)} {GROUPS[group] if len(paths) > 1 else group}" for group, paths in files.items()]
    rows = [
        f"| {f'`{group}=`' if path == paths[0] else ''} | `{path.stem}` | {_cell(sentence(path))} |"
        for group, paths in files.items()
        for path in paths
    ]
    return "\n".join(
        [
            f"<details><summary>{', '.join(counts[:-1])} and {counts[-1]}</summary>",
            "",
            "| | choice | what it is |",
            "|---|---|---|",
            *rows,
            "",
            "</details>",
            "",
        ]
    )


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("`", "\\`")


def updated(readme: str) -> str:
    """The README with today's catalogue between its two markers."""
    text, n = _PLACE.subn(lambda _: catalogue(), readme)
    if n != 1:
        raise SystemExit("README.md needs <!-- catalogue --> and <!-- /catalogue --> once, each on a line of its own.")
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text()))
