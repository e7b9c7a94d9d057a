"""Leave out groups that have nothing to test."""

from pathlib import Path

from lightning_fl.contract.conf import names

collect_ignore = [
    path.name for path in Path(__file__).parent.glob("test_*.py") if not names(path.stem.removeprefix("test_"))
]
