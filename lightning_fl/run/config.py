"""Where configurations are kept, what can be chosen there, and what a choice composes to.

Your own configurations are kept in a folder with the groups' names (``aggregator/my_rule.yaml``): ``conf`` in the
working folder, or the one named by --config-dir or the environment variable LIGHTNING_FL_CONF.  Its parent folder is
put on Python's path, so that ``_target_: my_rule.MyRule`` finds ``my_rule.py`` there.
"""

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, OmegaConf

from lightning_fl import yaml_file
from lightning_fl.errors import SettingError
from lightning_fl.run.identity import beside
from lightning_fl.run.saved import last_checkpoint
from lightning_fl.text import for_hydra, said

CONF = Path(__file__).resolve().parents[1] / "conf"
GROUPS = sorted(path.name for path in CONF.iterdir() if path.is_dir())
_FLAGS = "config-(dir|path|name)|cfg|package|info|experimental-rerun"  # options of Hydra that take a value
_SWITCHES = "help|hydra-help|version|resolve|run|multirun|shell-completion"  # those that take none
_SEVERAL = ("callbacks", "experiment", "logger", "method")  # groups of which a run may have several, in brackets
_LONGEST = 100  # letters of a run's name in loggers
OWN = "LIGHTNING_FL_CONF"  # an environment variable, so that processes started from here inherit it


def own_folder() -> Path | None:
    """Find the folder of your own configurations, and let Python import from its parent folder.

    Raises:
        SettingError: If the folder asked for is not there or has no group, is that of a checkout other than the one
            that runs, or has a file named like one of ours.
    """
    given = os.environ.get(OWN)
    folder = Path(given or "conf").resolve()
    groups = [group for group in GROUPS if (folder / group).is_dir()]
    if folder == CONF.resolve() or not (given or groups):
        return None
    if not groups:
        raise SettingError(f"a folder of configurations needs one of {', '.join(GROUPS)} in it, got {folder}.")
    if (folder.parent / "lightning_fl" / "conf").resolve() == folder:
        raise SettingError(
            f"{folder.parent} is a checkout of lightning-fl, but lightning-fl runs from {CONF.parent}; install the "
            f"checkout there (pip install -e .), or work in another folder."
        )
    for group in groups:
        # Letters may be large or small: some systems' disks do not tell them apart, and would find ours.
        twice = sorted(path for path in (folder / group).glob("*.yaml") if path.stem.lower() in _ours(group))
        if twice:
            raise SettingError(f"{twice[0]} has the name of a configuration of lightning-fl; give it another.")
    _check_sizes(folder)
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    return folder


@cache
def _check_sizes(folder: Path) -> None:
    """Check that no file of yours keeps Hydra busy for ever: it writes out aliases of aliases."""
    for path in sorted(folder.rglob("*.yaml")):
        try:
            yaml_file.load(path.read_text("utf-8"), yaml.SafeLoader)
        except yaml_file.LimitError as error:
            raise SettingError(f"{path} cannot be read: {error}.") from error
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue  # a run that chooses it says so


def take_own(arguments: list[str]) -> list[str]:
    """Remove --config-dir from a command line and remember it for `own_folder`.

    Returns:
        The same list without it.

    Raises:
        SettingError: If it does not name a folder.
    """
    for i, argument in enumerate(arguments):
        flag, equals, folder = argument.partition("=")
        if flag in ("--config-dir", "-cd"):
            taken = arguments[i : i + (1 if equals else 2)]
            folder = taken[-1] if not equals else folder
            if not (equals or len(taken) == 2) or not Path(folder).is_dir():
                raise SettingError(f"--config-dir needs a folder of configurations, got {folder}.")
            os.environ[OWN] = str(Path(folder).resolve())
            del arguments[i : i + len(taken)]
            break
    return arguments


def _ours(group: str) -> list[str]:
    return [path.stem for path in (CONF / group).glob("*.yaml")]


def choices(group: str) -> list[str]:
    """List the choices of a group."""
    own = own_folder()
    return sorted([*_ours(group), *(path.stem for path in (own / group).glob("*.yaml"))] if own else _ours(group))


def file_of(group: str, choice: str) -> Path:
    """Find the file of a choice: ours, or one's own."""
    own = own_folder()
    ours = CONF / group / f"{choice}.yaml"
    return ours if ours.exists() or own is None else own / group / ours.name


def is_own(group: str, choice: str) -> bool:
    """Whether a choice of a group is your own, not one of ours."""
    return not file_of(group, choice).is_relative_to(CONF)


def sentence(path: Path) -> str:
    """What a file of conf says of itself: the first sentence of its first comment, "" if it has none."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("# @package")]
    text = " ".join(line[2:].strip() for line in takewhile(lambda line: line.startswith("# "), lines))
    end = re.search(r"\.(?=  | [A-Z]|$)", text)
    return text[: end.end()] if end else ""


def compose(arguments: Sequence[str]) -> DictConfig:
    """Compose what the command line would; unlike `check.checked`, check nothing."""
    own = own_folder()
    search = [f"hydra.searchpath=[{for_hydra(f'file://{own}')}]"] if own else []
    with _reading():
        return settle(hydra.compose("train", [*spelled(arguments), *search]))


@contextmanager
def _reading() -> Iterator[None]:
    """Let Hydra read our configurations, also inside somebody else's application of Hydra."""
    running, job = GlobalHydra.instance(), JobRuntime.instance()
    theirs, name = running.hydra, job.get("name")
    if theirs is not None and any(str(CONF) in str(path) for path in theirs.config_loader.get_search_path().get_path()):
        yield
        return
    running.hydra = None
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().hydra = theirs  # leaving has put another in its place
        job.set("name", name)


@cache
def default_settings() -> dict[str, Any]:
    """Compose the settings of a run that chooses nothing."""
    settings: Any = OmegaConf.to_container(compose(["run_dir=null", "run_name=null"]), resolve=True)
    return dict(settings)


def settle(config: DictConfig) -> DictConfig:
    """Write into the settings what follows from them.

    Without an attack, no client is Byzantine; a run's folder to start from stands for its checkpoint; buffers that are
    refused are what nobody needs to say; what is watched is measured on validation samples where there are any.
    """
    start = config.model.get("start") if isinstance(config.get("model"), DictConfig) else None
    if isinstance(start, str) and Path(start).exists():  # by content, it is a part of the run's name
        last = last_checkpoint(Path(start))
        config.model.start = str((last if last.exists() else Path(start)).absolute())
    if isinstance(config.get("model"), DictConfig) and config.model.get("buffers") == "refuse":
        config.model.buffers = None
    if not config.get("adversary") and isinstance(config.get("federation"), DictConfig):
        config.federation.n_byzantine = 0
    for name, watching in (config.get("callbacks") or {}).items():
        if name in ("early_stopping", "model_checkpoint") and watching and watching.get("monitor") is None:
            validated = isinstance(config.get("data"), DictConfig) and config.data.get("validation_share")
            watching.monitor = "validation_accuracy" if validated else "accuracy"
    return config


def spelled(arguments: Sequence[str]) -> list[str]:
    """Treat +GROUP=x as GROUP=x, whether or not the group has a default, and --NAME=x as NAME=x.

    The latter is how W&B's agent spells the parameters of a sweep file without a command.  A value of letters and signs
    that Hydra would not read, as in a path, is quoted.
    """
    arguments = [re.sub(rf"^--(?!({_FLAGS})=)(?=[a-z_][\w.]*=)", "", argument) for argument in arguments]
    arguments = [re.sub(rf"^\++(?=({'|'.join(GROUPS)})=)", "", argument) for argument in arguments]
    return [argument if argument.startswith("-") else _quoted(argument) for argument in arguments]


def _quoted(argument: str) -> str:
    """Quote the value of NAME=VALUE if it is one word with a sign that Hydra reserves, such as ü, = or ~."""
    name, equals, value = argument.partition("=")
    if not equals or re.search(r"""[][{}()'",\s\\]""", value) or re.fullmatch(r"[\w/.:+$%*@?|-]*", value, re.ASCII):
        return argument
    return f"{name}='{os.path.expanduser(value)}'"


def spell(command: str, *arguments: str) -> str:
    """Spell a command the way the running one was started: by ``lightning-fl``, or by a file of ``scripts``."""
    installed = sys.argv[0].startswith("lightning-fl ") or not (CONF.parents[1] / "scripts/train.py").exists()
    return shlex.join([*(["lightning-fl", command] if installed else ["python", f"scripts/{command}.py"]), *arguments])


def short_name(overrides: Sequence[str]) -> str:
    """Name a run by the overrides that change its result: choices by their names, settings by the last part of theirs.

    >>> short_name(["method=raga", "trainer.max_steps=9", "logger=wandb", "seed=1"])
    'raga max_steps=9 seed=1'
    """
    parts = {}
    for override in overrides:
        key, equals, value = override.lstrip("+").partition("=")
        if not (beside(override) or key == "reference"):
            parts[key] = value if key in GROUPS else f"{key.rpartition('.')[2]}{equals}{value}"
    text = " ".join(parts.values()) or "defaults"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def words(overrides: str) -> list[str]:
    """Split overrides that stand in one text, as a shell does.

    Raises:
        SettingError: If a quote does not end.
    """
    try:
        return shlex.split(overrides)
    except ValueError as error:
        raise SettingError(f"overrides are separated by blanks, got {overrides!r}: {error}.") from None


def choose(name: str, valid: Collection[str], what: str) -> str:
    """Check a name.

    Raises:
        SettingError: If it is not one of the valid names, which the message lists.
    """
    if name in valid:
        return name
    raise SettingError(no_such(what, name, valid))


def no_such(what: str, name: str, valid: Collection[str], like: str | None = None) -> str:
    """Say that there is no such name, which one may be meant (close to ``like``), and which names are valid."""
    longer = [other for other in valid if name and like is None and other.lower().startswith(name.lower())]
    close = longer if 0 < len(longer) <= 3 else get_close_matches(like or name, valid, n=1)
    hint = f" did you mean {' or '.join(close)}?" if close else ""
    return f"there is no {what} {name};{hint} valid: {', '.join(valid)}."


def _unnamed(argument: str) -> str:
    """Say that settings have names, and which one an argument may be the value of."""
    group = next((group for group in GROUPS if argument in choices(group)), None)
    hint = f"; did you mean {group}={argument}?" if group else "; --help lists them."
    return f"settings are written NAME=VALUE, got {argument!r}{hint}"


def _check_own(group: str, choice: str) -> None:
    """Check that a configuration of your own is one: an empty file would choose nothing without a word."""
    if not is_own(group, choice):
        return
    path = file_of(group, choice)
    try:
        content = yaml_file.load(path.read_text("utf-8"), yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError(f"{path} cannot be read: {said(error)}.") from error
    if not content:
        raise SettingError(f"{path} is empty; write into it which class and settings it is for (_target_: ...).")


def check_choices(arguments: Sequence[str]) -> None:
    """Check the choices that the arguments make; Hydra would take many lines to refuse one.

    Raises:
        SettingError: If an argument is not a setting, a choice does not exist, or there are several where a run has
            one.
    """
    several = {"-m", "--multirun"} & set(arguments)
    # A run: GROUP=NAME, GROUP=[NAME], of some groups GROUP=[NAME,NAME]; -m: GROUP=NAME,NAME, and what Hydra can draw.
    for previous, argument in pairwise(["", *arguments]):
        key, equals, given = argument.partition("=")
        if re.fullmatch(r"--[a-z_][\w.-]*", argument) and not re.fullmatch(rf"--({_FLAGS}|{_SWITCHES})", argument):
            raise SettingError(f"settings are written NAME=VALUE, got {argument!r}; did you mean {argument[2:]}=...?")
        may_be_value = previous.startswith("-") and previous not in several  # of Hydra's option before it
        if not (equals or may_be_value or argument.startswith(("-", "~"))) or not key.lstrip("+"):
            raise SettingError(_unnamed(argument))
        group = key.partition("@")[0]  # GROUP@PLACE=CHOICE
        if group not in GROUPS or given == "[]":
            continue
        named = re.fullmatch(r"([\w.,-]+)|\[([\w.,-]+)\]", given)
        if named is None and several:
            continue  # Hydra's own: glob(*), choice(a,b)
        if named is None:
            raise SettingError(f"{key} needs the name of a choice, got {given!r}; valid: {', '.join(choices(group))}.")
        if "," in given and group in ("callbacks", "logger") and named[1] and not several:
            what = group if group.endswith("s") else f"{group}s"
            raise SettingError(f"several {what} of a run stand in brackets, got {given}; give {group}=[{given}].")
        if "," in given and all(given.split(",")) and (not several if named[1] else group not in _SEVERAL):
            raise SettingError(
                f"a run has one choice of {group}, got {given} (train -m {group}={named[1] or named[2]} trains them "
                f"one after the other)."
            )
        for choice in (named[1] or named[2]).split(","):
            if not choice:
                raise SettingError(f"choices are separated by a comma without a blank, got {argument!r}.")
            if choice not in choices(group):
                where = "" if own_folder() else " Your own are read from conf/ in the folder where the command is run."
                raise SettingError(no_such(group, choice, choices(group)) + where)
            _check_own(group, choice)
