"""A rule or an attack that enters the standing: one folder with its code, its card and what it has reached.

The folder holds ``card.yaml``, which its author fills in; ``submission.yaml``, what is played; ``conf`` and the code
that it names; ``cells.csv``, its runs; ``result.md``, what they come to, and what ByzAttack-1 finds against a rule.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import yaml
from hydra.utils import get_object

from lightning_fl import files, yaml_file
from lightning_fl.contract import ONLY
from lightning_fl.errors import DataError, MissingError, SettingError, install
from lightning_fl.run.config import choices, choose, compose, file_of, is_own
from lightning_fl.study import store
from lightning_fl.study.cell import own_texts, reached, words_of
from lightning_fl.study.tournament import NOBODY, STORED, Tournament, accuracy
from lightning_fl.study.tournament_report import heading, terminal
from lightning_fl.study.twins import percentile_95
from lightning_fl.text import many

_CARD = {
    "title": "of the paper; unpublished if there is none",
    "authors": "as the paper has them",
    "link": "to the paper or the code",
    "needs": "what it must have beside the updates: f, samples at the server, who sent them, memory; or nothing",
    "claims": "what it promises, in a sentence",
}
_N, _F, _D = 25, 5, 100  # what ByzAttack-1 is played at


@dataclass(frozen=True)
class Submission:
    """What is submitted.

    Args:
        name: Name of a file of one's own in conf/aggregator, or, of an attack, in conf/adversary.
        lowers: The rule that an attack lowers.  None: the submission is a rule.
        selection: Options of ``lightning-fl tournament`` that choose what is played, and the protocol.

    Raises:
        SettingError: If there is no such file, or it is not one's own.
    """

    name: str
    lowers: str | None
    selection: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and re.fullmatch(r"[\w.-]+", self.name, re.ASCII)):
            raise SettingError(f"submit needs a name of Latin letters, digits, '_', '-' and '.', got {self.name!r}.")
        if not isinstance(self.selection, Mapping):
            raise SettingError(f"submission.yaml needs options as selection, got {self.selection!r}.")
        if self.lowers is None and self.name in set(choices("adversary")) - set(choices("aggregator")):
            raise SettingError(f"submit takes {self.name}, an attack, with --lowers RULE; add the rule.")
        choose(self.name, choices(self.group), self.group)
        if not is_own(self.group, self.name):
            raise SettingError(f"submit needs a file of your own in conf/{self.group}, got {self.name}, one of ours.")
        if self.lowers is not None:
            choose(self.lowers, choices("aggregator"), "rule")

    @property
    def group(self) -> str:
        """That of the file."""
        return "aggregator" if self.lowers is None else "adversary"

    @property
    def own_choices(self) -> list[str]:
        """What it chose otherwise than the protocol; with any, it is a trial."""
        return [name for name in self.selection if name != "protocol"]

    @classmethod
    def read(cls, folder: Path) -> "Submission":
        """Read what was submitted; its own folder of configurations is the one in use.

        Raises:
            DataError: If the folder holds none.
        """
        path = folder / "submission.yaml"
        try:
            return cls(**yaml_file.load(path.read_text("utf-8"), yaml.SafeLoader, environment=False))
        except (OSError, TypeError, yaml.YAMLError) as error:
            raise DataError(f"{folder} needs a submission.yaml as lightning-fl submit writes it: {error}.") from error

    def check_laws(self) -> None:
        """Let the contract's tests try it, in a process of their own.

        Raises:
            SettingError: If one fails.
            MissingError: If there is no pytest.
        """
        if find_spec("pytest") is None:
            raise MissingError(f"submit needs pytest for the contract's laws, got none; {install('test')}.")
        words = ["-m", "pytest", "-q", "--pyargs", f"lightning_fl.contract.test_{self.group}"]
        alone = os.environ | {ONLY: self.name}  # -k would take every name that holds it
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, encoding="utf-8", errors="replace", env=alone
        )
        if done.returncode:
            lines = f"{done.stdout}{done.stderr}".splitlines()
            said = "\n".join(
                [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))][-40:] or lines[-40:]
            )
            again = f"{ONLY}={self.name} python {' '.join(words)}"
            raise SettingError(f"{self.name} breaks a law of the contract; {again} shows it whole:\n{said}")

    def kappa(self, budget: int) -> str:
        """Play ByzAttack-1 against a rule, or say why it cannot be asked; nothing of an attack."""
        from lightning_fl.run.assemble import make
        from lightning_fl.yardstick.worst import kappa

        made = make(compose([f"{self.group}={self.name}", f"f={_F}"])[self.group])  # also imports its file
        if self.lowers is not None:
            return ""
        try:
            return str(kappa(made, _N, _F, _D, budget=budget))
        except SettingError as error:
            return f"ByzAttack-1 cannot ask it: {error}"

    def write(self, folder: Path, tournament: Tournament) -> None:
        """Write what it is, its runs, its configuration, and the files of the project that Python has read for it."""
        files.write(folder / "submission.yaml", yaml.safe_dump(vars(self), sort_keys=False))
        rows = map(tournament.row, [*tournament.tuning(), *tournament.cells()])
        store.write(folder / "cells.csv", STORED, [*filter(None, rows), *tournament.impossible.values()])
        project = file_of(self.group, self.name).resolve().parents[2]
        words = {word for cell in tournament.cells() for text in cell.overrides for word in words_of(text)}
        named = reached(words, own_texts())
        for text in named.values():
            with suppress(Exception):  # Python is to read their files; what it cannot, no run needed
                for target in _targets(yaml.load(text, yaml.BaseLoader)):
                    get_object(target)
        modules = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
        read = [Path(found).resolve() for found in modules if found and Path(found).is_file()]
        read = [path for path in read if project in path.parents and "site-packages" not in path.parts]
        for path in [*(path.resolve() for path in named), *read]:
            to = folder / path.relative_to(project)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)

    def check_played(self, tournament: Tournament) -> None:
        """Check that its runs could be.

        Raises:
            SettingError: If some were refused: of an attack any, of a rule those in which nobody attacks.
        """
        rows = [*tournament.impossible.values(), *filter(None, map(tournament.row, tournament.cells()))]
        attack = NOBODY if self.lowers is None else self.name
        for row in rows:
            if row["status"] == "refused" and row["attack"] == attack:
                against = f" against {self.lowers}" if self.lowers else ""
                raise SettingError(f"{self.name} cannot be run{against}: {row['reason']}")

    def result(self, tournament: Tournament, error: float) -> str:
        """Say what its runs come to; a difference of more points than the error is one."""
        lines = [terminal(tournament).strip()]
        for panel, points in _lowered(tournament, self.name).items() if self.lowers else ():
            verdict, side = ("lowers" if points > error else "does not lower"), ("below" if points > 0 else "above")
            found = f"{abs(points):.2f} points {side} the worst of the others"
            lines.append(f"{panel}: {self.name} {verdict} {self.lowers}, {found}.")
        return "\n".join(lines)


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from [str(node["_target_"])] if "_target_" in node else []
        for inner in node.values():
            yield from _targets(inner)


def check_card(folder: Path) -> None:
    """Check that the card is filled in; write an empty one where there is none.

    Raises:
        SettingError: If it is not.
    """
    path = folder / "card.yaml"
    if not path.exists():
        files.write(path, "".join(f"{key}:  # {what}\n" for key, what in _CARD.items()))
    try:
        card = yaml_file.load(path.read_text("utf-8"), yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise SettingError(f"{path} cannot be read: {error}.") from error
    missing = [key for key in _CARD if not (isinstance(card, dict) and card.get(key))]
    if missing:
        raise SettingError(f"{path} needs {', '.join(missing)}, got none; fill it in, and repeat the command.")


def apart(tournament: Tournament, folder: Path, error: float) -> tuple[str, bool]:
    """Compare runs with those that were submitted.

    Args:
        tournament: The tournament as it was played again, perhaps at other rates.
        folder: The submission.
        error: Points that 95 % of the runs may be apart.

    Returns:
        What to say, and whether the submission holds.
    """
    told = ["rule", "attack", "skew", "byzantine", "told", "seed"]
    rows = {tuple(row[key] for key in told): row for row in store.read(folder / "cells.csv", STORED)}  # chosen last
    differences, missing, impossible = dict[str, float](), 0, list[str]()
    for row in filter(None, map(tournament.row, tournament.cells())):
        submitted = rows.get(tuple(row[key] for key in told))
        missing += submitted is None
        if submitted is not None and {row["status"], submitted["status"]} != {"refused"}:
            name, claimed = f"{row['attack']}, {row['skew']}, seed {row['seed']}", accuracy(submitted)
            differences[name] = 100 * abs(accuracy(row) - claimed)
            if not 0 <= claimed <= 1 or "refused" in (row["status"], submitted["status"]):
                impossible.append(f"{name}: {submitted['status']}, {claimed:g}")
    if missing or not differences:
        return f"{many(missing, 'run')} not submitted, of {missing + len(differences)}.", False
    if impossible:
        return f"{many(len(impossible), 'run')} cannot be what it says ({impossible[0]}).", False
    reached, farthest = percentile_95([*differences.values()]), max(differences, key=lambda name: differences[name])
    played = f"{many(len(differences), 'run')} compared: 95 % within {reached:.2f} points ({error:g} allowed)"
    return f"{played}, the farthest {differences[farthest]:.2f} ({farthest}).", reached <= error


def _lowered(tournament: Tournament, attack: str) -> dict[str, float]:
    """Tell by how many points an attack leaves the rule less than the worst of the others, by panel."""
    found: dict[str, float] = {}
    (rule,) = tournament.entries.rules
    for panel in tournament.panels():
        points: dict[int, dict[str, float]] = {}
        for cell in tournament.of(rule, panel)[0]:
            if (value := tournament.points(cell.labels, cell.seed)) is not None:
                points.setdefault(cell.seed, {})[cell.labels.attack] = value
        gains = [min(of.values()) - own for of in points.values() if (own := of.pop(attack, None)) is not None]
        found |= {heading(panel): mean(gains)} if gains else {}
    return found
