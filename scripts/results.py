"""Write the tables inside RESULTS.md anew from the kept cells.

python scripts/results.py
"""

from pathlib import Path

from lightning_fl.study.results import filled

PAGE = Path(__file__).resolve().parents[1] / "RESULTS.md"

if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
