"""Groups of which there is nothing to test are left out."""

from pathlib import Path

from lightning_fl.contract.conf import names

collect_ignore = [
    path.name for path in Path(__file__).parent.glob("test_*.py") if not names(path.stem.removeprefix("test_"))
]
