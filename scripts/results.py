"""Write the tables inside RESULTS.md and TOURNAMENT.md anew from the kept cells.

python scripts/results.py
"""

import argparse
from pathlib import Path

from lightning_fl.study.results import filled

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name in ("RESULTS.md", "TOURNAMENT.md"):
        page = Path(__file__).resolve().parents[1] / name
        page.write_text(filled(page.read_text()))
