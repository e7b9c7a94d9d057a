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
from lightning_fl.errors import SettingError
from lightning_fl.run.config import OWN, take_own
from lightning_fl.run.explain import explained
from lightning_fl.study.options import add_running, add_selection, selected
from lightning_fl.study.runner import Runner, resumable, stop_when_told
from lightning_fl.study.submission import Submission, apart, check_card
from lightning_fl.study.tournament import Entries, Tournament
from lightning_fl.study.tournament_report import write
from lightning_fl.text import shown


def defaults() -> dict[str, object]:
    """What a tournament plays of itself."""
    parser = ArgumentParser()
    add_selection(parser)
    return vars(parser.parse_args([]))


def entries(submission: Submission) -> Entries:
    """What competes, the submission included."""
    given = Namespace(**(defaults() | dict(submission.selection)))
    if submission.lowers is None:
        given.add = [*given.add, submission.name]
        return selected(given)
    given.rules = submission.lowers
    chosen = selected(given)
    return replace(chosen, attacks=list(dict.fromkeys([*chosen.attacks, submission.name])))


def play(submission: Submission, folder: Path, given: Namespace) -> tuple[Tournament, str]:
    """Try the laws, play what is missing, and say what it has reached.

    Raises:
        SettingError: If it breaks a law, or a run failed.
    """
    whole, rule = entries(submission), submission.lowers or submission.name
    tournament = Tournament(replace(whole, rules={rule: whole.rules[rule]}), folder)
    submission.check_laws()
    kappa = submission.kappa(given.budget)
    failed = play_all(tournament, Runner(given.workers, given.on))
    if failed:
        raise SettingError(f"{submission.name} failed in {len(failed)} runs; the first: {failed[0]['reason']}.")
    return tournament, f"{submission.result(tournament, given.error)}\n{kappa}".strip()


def submit(given: Namespace) -> None:
    """Write the folder."""
    usual = defaults()
    selection = {name: getattr(given, name) for name in usual if getattr(given, name) != usual[name]}
    submission = Submission(given.name, given.lowers, {"protocol": given.protocol} | selection)
    out = Path("submissions", given.name)
    check_card(out)
    tournament, reached = play(submission, given.folder / given.name, given)
    submission.write(out, tournament)
    files.write(out / "result.md", f"```\n{reached}\n```\n")
    print(f"{reached}\n{shown(out)}: send this folder as submissions/{given.name} in a pull request.")


def check(given: Namespace) -> None:
    """Play what a folder holds, and write the standing."""
    folder = given.check.resolve()
    check_card(folder)
    os.environ[OWN] = str(folder / "conf")
    submission = Submission.read(folder)
    tournament, reached = play(submission, given.folder / f"{submission.name}_again", given)
    said, holds = apart(tournament, folder, given.error)
    chosen = ", ".join(f"{name}={value}" for name, value in submission.selection.items())
    report = write(Tournament(entries(submission), tournament.folder))
    print(f"{reached}\n{said}\nPlayed: {chosen}.\n{shown(report)}")
    if not holds:
        sys.exit(1)


def main() -> None:
    """Run the command line."""
    stop_when_told()
    parser = parser_of(__doc__)
    parser.add_argument("name", nargs="?", help="of your file in conf/aggregator or conf/adversary")
    parser.add_argument("--lowers", metavar="RULE", help="the submission is an attack on this rule")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="play a submission again")
    parser.add_argument("--error", type=float, default=1.0, help="points that 95 %% of runs may differ (1)")
    parser.add_argument("--budget", type=int, default=1000, help="how often ByzAttack-1 asks a rule at most (1000)")
    add_selection(parser)
    add_running(parser, "runs/submit")
    with explained(), resumable():
        given = parser.parse_intermixed_args(take_own(sys.argv[1:]))
        if (given.name is None) == (given.check is None):
            raise SettingError("submit needs the name of your rule or attack, or --check FOLDER, got both or neither.")
        submit(given) if given.check is None else check(given)
