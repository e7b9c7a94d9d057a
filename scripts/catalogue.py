"""Write CATALOGUE.md, the table of everything in conf/: what each file says of itself in its first comment.

python scripts/catalogue.py
"""

import argparse
from html import escape
from pathlib import Path
from typing import Any

from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

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
            lines.append(f"{row} {knowledge(path)} |" if more else row)
    return "\n".join([*lines, ""])


def knowledge(path: Path) -> str:
    """What an attack goes by at most; see `Adversary.knows`."""
    config = OmegaConf.create({"adversary": OmegaConf.load(path)}).adversary
    if not config or "_target_" not in config:
        return "-"
    # One that reads a file of the user's cannot be made here.
    attack: Any = get_class(config._target_) if "path" in config else instantiate(config)
    return str(attack.knows)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("*", "\\*").replace("`", "\\`")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(catalogue())
