"""Begin a project of your own: an example of each part, sweeps and a notebook.

lightning-fl init FOLDER
"""

from pathlib import Path
from shutil import copytree, ignore_patterns

from lightning_fl.commands import explained_by, parser_of, whole
from lightning_fl.errors import SettingError
from lightning_fl.run.explain import explained

START = Path(__file__).resolve().parents[1] / "start"
_LEFT = ignore_patterns("__pycache__", ".*", "runs")  # what trying it out leaves in a checkout


def init(folder: Path) -> None:
    """Copy the example project and the sweeps into a folder.

    Raises:
        SettingError: If something is there already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingError(f"init needs a new or an empty folder, got {folder}; choose another.")
    with whole(folder):
        copytree(START / "project", folder, ignore=_LEFT, dirs_exist_ok=True)
        copytree(START / "sweeps", folder / "sweeps", ignore=_LEFT)
        for path in (folder / "sweeps").glob("*.yaml"):
            path.write_text(explained_by(path.read_text("utf-8")), encoding="utf-8")
    print(f"{folder}: README.md says what is there.")


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="a new or an empty one")
    with explained():
        init(parser.parse_args().folder)
