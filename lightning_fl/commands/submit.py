"""Submit a rule of your own to the standing, or an attack that lowers a rule of it: one folder to send.

lightning-fl submit my_rule                          laws, the protocol's runs, ByzAttack-1; writes submissions/my_rule
lightning-fl submit my_attack --lowers krum          the protocol's runs of a rule, with this attack beside the others
lightning-fl submit --check submissions/my_rule      play it again, compare, write the standing with it

The first call writes submissions/NAME/card.yaml, to be filled in.  If stopped, the same command continues.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from lightning_fl import files
from lightning_fl.commands import parser_of
from lightning_fl.commands.tournament import play_all
from lightning_fl.errors import SettingError, check_whole
from lightning_fl.run.config import OWN, take_own
from lightning_fl.run.explain import explained
from lightning_fl.run.version import version
from lightning_fl.study.options import add_running, add_selection, selected
from lightning_fl.study.runner import Runner, resumable, stop_when_told
from lightning_fl.study.submission import Submission, apart, check_card
from lightning_fl.study.tournament import Entries, Tournament
from lightning_fl.study.tournament_report import write
from lightning_fl.text import shown

_BUDGET = 1000


def chosen(given: Namespace) -> dict[str, object]:
    """What a command line selects otherwise than a tournament does of itself."""
    return {name: getattr(given, name) for name, usual in defaults().items() if getattr(given, name) != usual}


def defaults() -> dict[str, object]:
    """What a tournament plays of itself."""
    parser = ArgumentParser()
    add_selection(parser)
    return vars(parser.parse_args([]))


def entries(submission: Submission) -> Entries:
    """What competes, the submission included.

    Raises:
        SettingError: If it chooses what a tournament has no option for, or by another type than the option's.
    """
    usual = defaults()
    for name, value in submission.selection.items():
        if name not in usual or not isinstance(value, str if usual[name] is None else type(usual[name])):
            raise SettingError(f"selection needs options of lightning-fl tournament as text, got {name}: {value!r}.")
    given = Namespace(**(usual | dict(submission.selection)))
    if submission.lowers is None:
        given.add = [*given.add, submission.name]
        return selected(given)
    given.rules = submission.lowers
    chosen = selected(given)
    return replace(chosen, attacks=list(dict.fromkeys([*chosen.attacks, submission.name])))


def its_own(submission: Submission, folder: Path) -> Tournament:
    """The runs of the submission alone."""
    whole, rule = entries(submission), submission.lowers or submission.name
    return Tournament(replace(whole, rules={rule: whole.rules[rule]}), folder)


def play(submission: Submission, tournament: Tournament, given: Namespace) -> str:
    """Try the laws, play what is missing, and say what it has reached.

    Raises:
        SettingError: If it breaks a law, a run failed, or it cannot be run.
    """
    submission.check_laws()
    kappa = submission.kappa(given.budget)
    runner = Runner(given.workers, given.on, fresh=given.check is not None)  # a rule learns nothing of other runs
    tournament.check(runner, version())
    failed = play_all(tournament, runner)
    if failed:
        raise SettingError(f"{submission.name} failed in {len(failed)} runs; the first: {failed[0]['reason']}.")
    submission.check_played(tournament)
    return f"{submission.result(tournament, given.error)}\n{kappa}".strip()


def submit(given: Namespace) -> None:
    """Write the folder."""
    selection = chosen(given)
    submission = Submission(given.name, given.lowers, {"protocol": given.protocol} | selection)
    out = Path("submissions", given.name)
    tournament = its_own(submission, given.folder / given.name)
    if given.dry_run:
        play_all(tournament, Runner(given.workers, given.on), dry=True)
        return
    check_card(out)
    reached = play(submission, tournament, given)
    submission.write(out, tournament)
    files.write(out / "result.md", f"```\n{reached}\n```\n")
    own = [*submission.own_choices, *(["budget"] if given.budget != _BUDGET else [])]
    send = f"send this folder as submissions/{given.name} in a pull request"
    if own:
        send = f"a trial; without {', '.join(own)} of your own it would be the protocol's, to be sent"
    print(f"{reached}\n{shown(out)}: {send}.")


def check(given: Namespace) -> None:
    """Play what a folder holds, and write the standing.

    Raises:
        SettingError: If something else is chosen, or what the folder holds does not fit.
    """
    folder, others = given.check.resolve(), [*chosen(given), *(["lowers"] if given.lowers else [])]
    if others:
        raise SettingError(f"--check plays what the submission chose, got {', '.join(others)}; leave it out.")
    os.environ[OWN] = str(folder / "conf")
    submission = Submission.read(folder)
    tournament = its_own(submission, given.folder / f"{submission.name}_again")
    if given.dry_run:
        play_all(tournament, Runner(given.workers, given.on), dry=True)
        return
    check_card(folder)
    reached = play(submission, tournament, given)
    said, holds = apart(tournament, folder, given.error)
    selected_there = ", ".join(f"{name}={value}" for name, value in submission.selection.items())
    report = write(Tournament(entries(submission), tournament.folder))
    trial = "" if given.trial or not submission.own_choices else " It is a trial, not the protocol's."
    print(f"{reached}\n{said}\nPlayed: {selected_there}.{trial}\n{shown(report)}")
    if not holds or trial:
        sys.exit(1)


def main() -> None:
    """Run the command line."""
    stop_when_told()
    parser = parser_of(__doc__)
    parser.add_argument("name", nargs="?", help="of your file in conf/aggregator or conf/adversary")
    parser.add_argument("--lowers", metavar="RULE", help="the submission is an attack on this rule")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="play a submission again")
    parser.add_argument("--error", type=float, default=1.0, help="points that 95 %% of runs may differ (1)")
    parser.add_argument(
        "--budget", type=int, default=_BUDGET, help=f"how often ByzAttack-1 asks a rule at most ({_BUDGET})"
    )
    parser.add_argument(
        "--trial", action="store_true", help="with --check: it may have chosen otherwise than a protocol"
    )
    add_selection(parser)
    add_running(parser, "runs/submit")
    with explained(), resumable():
        given = parser.parse_intermixed_args(take_own(sys.argv[1:]))
        if given.name is not None and "=" in given.name:
            given.name, given.overrides = None, [given.name, *given.overrides]
        check_whole("--budget", given.budget, 1)
        if not given.error >= 0:
            raise SettingError(f"--error must be at least 0, got {given.error:g}.")
        if (given.name is None) == (given.check is None):
            got = "both" if given.name else "neither"
            raise SettingError(f"submit needs the name of your rule or attack, or --check FOLDER, got {got}.")
        submit(given) if given.check is None else check(given)
