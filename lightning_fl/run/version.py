"""Which code measured a result, when and on which machine."""

import multiprocessing
import platform
import re
import shlex
import subprocess
import sys
from datetime import datetime
from functools import cache
from importlib.metadata import version as version_of
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from lightning_fl import __version__
from lightning_fl.run.config import CONF, own_folder, spell


def provenance(code: str | None = None) -> dict[str, str]:
    """Name the command, the date, the versions and the processor, as reports show them.

    Args:
        code: Version of the package.  None: the present one.
    """
    packages = ["torch", "pytorch-lightning"]
    versions = [f"lightning-fl {code or version()}", f"Python {platform.python_version()}"]
    return {
        "command": _command(),
        "date": datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        "versions": ", ".join(versions + [f"{name} {version_of(name)}" for name in packages]),
        "processor": _processor(),
    }


def written() -> str:
    """Say in one line what has just been written where, for the end of a report."""
    found = provenance()
    return f"Written {found['date']} by `{found['command']}`; {found['versions']}; {found['processor']}."


def _command() -> str:
    worker = multiprocessing.parent_process() is not None  # it inherits the arguments of the command that asks
    installed = sys.argv[0].startswith("lightning-fl ")
    words = sys.argv if worker or installed else sys.orig_argv
    if _of_several():  # what trains this run alone
        own = own_folder()
        said = spell("train", *(["--config-dir", str(own)] if own else []), *HydraConfig.get().overrides.task)
    else:
        said = f"{sys.argv[0]} {shlex.join(words[1:])}" if installed else shlex.join(words)
    return said.replace(f"--config-dir {shlex.quote(str(Path.cwd() / 'conf'))} ", "")  # which Hydra alone is told


def _of_several() -> bool:
    """Whether this is a run of ``train -m``, not of somebody else's application of Hydra."""
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        return False
    sources = HydraConfig.get().runtime.config_sources
    return any(source.provider == "main" and Path(source.path) == CONF for source in sources)


@cache
def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # platform.processor() is empty on most Linux systems
    named = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return named[1] if named else platform.processor() or platform.machine()


def version() -> str:
    """Name the package's version and, of a checkout, its commit: 0.1.0+g1a2b3c4, with .dirty if its code is changed."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return __version__
    try:
        commit = _git(checkout, "describe", "--always", "--exclude=*")
        # A kept table that grows while it is measured changes no number.
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "lightning_fl", "conf")
    except (OSError, subprocess.TimeoutExpired):
        return __version__
    return f"{__version__}+g{commit}{'.dirty' if changed else ''}" if commit else __version__


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
