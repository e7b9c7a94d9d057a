"""Write the tables inside RESULTS.md, TOURNAMENT.md and pages of docs anew from the kept cells.

python scripts/results.py
"""

import argparse
from pathlib import Path

from lightning_fl.study.results import filled

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    root = Path(__file__).resolve().parents[1]
    for page in [*root.glob("*.md"), *root.glob("docs/*.md")]:
        text = page.read_text("utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, "utf-8")
