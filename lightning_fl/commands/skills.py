"""Tell coding assistants how to add a rule, run a table and read a standing: a folder with a SKILL.md for each.

lightning-fl skills .claude/skills           or wherever your assistant looks for them
"""

from pathlib import Path
from shutil import copytree, ignore_patterns

from lightning_fl.commands import parser_of, whole
from lightning_fl.commands.init import START
from lightning_fl.errors import SettingError
from lightning_fl.run.explain import explained


def skills(folder: Path) -> None:
    """Copy the skills into a folder, beside others.

    Raises:
        SettingError: If one of the same name is there.
    """
    ours = sorted(path for path in (START / "skills").iterdir() if path.is_dir())
    if there := [path.name for path in ours if (folder / path.name).exists()]:
        raise SettingError(
            f"skills needs a folder without {', '.join(there)}, got {folder}; remove these, or choose another."
        )
    with whole(*(folder / path.name for path in ours)):
        for path in ours:
            copytree(path, folder / path.name, ignore=ignore_patterns(".*"))
    print(f"{folder}: {', '.join(path.name for path in ours)}.")


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="made if it is not there")
    with explained():
        skills(parser.parse_args().folder)
