"""What a group's package offers: its modules and their classes, discovered on disk, imported when first used."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader

from lightning_fl.text import meant


def attach(
    package: str, file: str, **functions: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Find a group's public modules and classes, so that no list of them has to be kept.

    Only the text of the files is read: listing the names does not wait for torch.

    Args:
        package: Name of the group's package.
        file: Its ``__init__.py``.
        functions: Names of functions that stand beside the classes, by module.

    Returns:
        The package's ``__getattr__``, ``__dir__`` and ``__all__``.
    """
    modules = {path.stem: path for path in sorted(Path(file).parent.glob("[a-z]*.py"))}
    classes = {name: re.findall(r"^class ([A-Z]\w*)", path.read_text("utf-8"), re.M) for name, path in modules.items()}
    for name, offered in functions.items():
        classes[name] += offered
    load, names, every = lazy_loader.attach(package, modules.keys(), classes)

    def attribute(name: str) -> Any:
        if name not in every:
            raise AttributeError(f"{package} has no {name}{_chosen(Path(file).parent, name) or meant(name, every)}")
        return load(name)

    return attribute, names, [name for name in every if name not in modules]  # a module sorted is not for import *


def _chosen(group: Path, name: str) -> str:
    """Say which class makes what is called so in ``conf`` alone, such as FedAvg; "" if nothing is."""
    for path in (group.parent / "conf" / group.name).glob("*.yaml"):
        if path.stem.replace("_", "") == name.lower().replace("_", ""):
            for made in re.findall(r"^_target_: \S+\.(\w+)", path.read_text("utf-8"), re.M):
                return f"; {group.name}={path.stem} is {made} with the settings of conf/{group.name}/{path.name}."
    return ""
