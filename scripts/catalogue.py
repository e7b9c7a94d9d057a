"""Write CATALOGUE.md, the table of everything in conf/: what each file says of itself in its first comment.

python scripts/catalogue.py
"""

import argparse
from html import escape
from pathlib import Path

from lightning_fl.run.assemble import knowledge
from lightning_fl.run.config import sentence

ROOT = Path(__file__).resolve().parents[1]
GROUPS = {
    "aggregator": "rules",
    "adversary": "attacks",
    "method": "methods",
    "client": "clients",
    "partition": "partitions",
    "data": "data sets",
    "model": "models",
    "loss": "losses",
    "server": "servers",
    "schedule": "schedules",
    "callbacks": "callbacks",
    "logger": "loggers",
    "experiment": "experiments",
}
PAGE = ROOT / "CATALOGUE.md"


def catalogue() -> str:
    """Write the page: how many there are of each group, and a table per group."""
    files = {group: sorted((ROOT / "conf" / group).glob("*.yaml")) for group in GROUPS}
    counts = [f"{len(paths)} {GROUPS[group] if len(paths) > 1 else group}" for group, paths in files.items()]
    lines = [
        "# What can be chosen",
        "",
        f"{', '.join(counts[:-1])} and {counts[-1]}.",
        "Choose each by `GROUP=CHOICE`, such as `aggregator=boba`; its file",
        "`conf/GROUP/CHOICE.yaml` names its settings. `python scripts/catalogue.py` writes this page.",
    ]
    for group, paths in files.items():
        more = group == "adversary"
        lines += ["", f"## `{group}=`", "", "| choice | what it is |" + " knows |" * more, "|---|---|" + "---|" * more]
        for path in paths:
            row = f"| [`{path.stem}`](conf/{group}/{path.name}) | {_cell(sentence(path))} |"
            lines.append(f"{row} {knowledge(path) or '-'} |" if more else row)
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("`", "\\`")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(catalogue(), "utf-8")
