"""Options of the command line that several studies share, and those that choose what a tournament plays."""

import argparse
import re
from math import inf
from pathlib import Path
from typing import Any

from lightning_fl.errors import SettingError
from lightning_fl.run.config import spelled
from lightning_fl.study.table import IN_CHECKOUT
from lightning_fl.study.tournament import PROTOCOL, Entries
from lightning_fl.text import number


def listed(text: str | None) -> list[str] | None:
    """Read names separated by commas.

    >>> listed("boba, krum"), listed(None)
    (['boba', 'krum'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def seeds_of(text: str) -> list[int]:
    """Read --seeds: how many, or which.

    >>> seeds_of("3"), seeds_of("0,4"), seeds_of("0,")
    ([0, 1, 2], [0, 4], [0])
    """
    if not re.fullmatch(r"0*[1-9]\d*|(\d+,)+\d*", text):
        raise SettingError(f"--seeds needs how many (3) or which (0,1,2; one alone: 7,), got {text!r}.")
    given = [int(seed) for seed in text.split(",") if seed]
    return list(dict.fromkeys(given)) if "," in text else list(range(given[0]))


def check_keep(given: argparse.Namespace) -> None:
    """Check --keep.

    Raises:
        SettingError: If there is no checkout to write into.
    """
    if given.keep and not IN_CHECKOUT:
        raise SettingError("--keep writes into scripts/tables of a checkout, got an installed package; leave it out.")


def add_running(parser: argparse.ArgumentParser, folder: str) -> None:
    """Add the options of who trains, and where it goes."""
    parser.add_argument("--workers", type=int, default=1, help="runs at a time (1); they share the cores")
    parser.add_argument("--on", metavar="WHERE", help="ray, or a cluster's address (ray://HOST:10001); else here")
    parser.add_argument("--folder", type=Path, default=Path(folder), help=f"where everything goes ({folder})")
    parser.add_argument("--dry-run", action="store_true", help="train nothing: say what is missing")


def add_twins(parser: argparse.ArgumentParser) -> None:
    """Add the option that asks for twins."""
    parser.add_argument(
        "--twins",
        nargs="?",
        const="1",
        metavar="SHARE",
        help="also a twin of each run of the first seed, or of a share: how far rounding alone moves results",
    )


def share_of_twins(given: argparse.Namespace) -> float:
    """Read --twins: the share of the runs that have one, 0 without the option."""
    return 0.0 if given.twins is None else _share("--twins", given.twins)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose what a tournament plays."""
    parser.add_argument("overrides", nargs="*", help="further settings of every run, as for train")
    parser.add_argument("--protocol", default=PROTOCOL, help=f"settings of lightning_fl/study/protocols ({PROTOCOL})")
    parser.add_argument("--quick", action="store_true", help="the small tournament, of 15 minutes")
    parser.add_argument("--rules", help="only these, separated by commas; see conf/aggregator")
    parser.add_argument("--attacks", help="only these, separated by commas; see conf/adversary")
    parser.add_argument("--knows", help="of these, attacks that go by: rule,updates,data,models,nothing (all)")
    parser.add_argument("--skew", help="partitions, or the alpha of Dirichlet ones (iid,0.1,pathological)")
    parser.add_argument("--byzantine", help="numbers of Byzantine clients beside the 100 honest ones (15)")
    parser.add_argument(
        "--told", metavar="MULTIPLES", help="what rules are told as f: 0,0.5,1,1.5,2 times that number (1)"
    )
    parser.add_argument("--seeds", help="how many, such as 3, or which (0,1,2; one alone: 7,)")
    parser.add_argument("--again", metavar="SHARE", help="least share of the worst attack's cost to replay it (0.5)")
    parser.add_argument("--rates", help="of the server, to choose each rule's from (the protocol's)")
    parser.add_argument(
        "--radii", help="for rules that have a radius, to choose from (the protocol's; without, their own)"
    )
    parser.add_argument("--data", help="a data set other than mnist_5k")
    parser.add_argument("--model", help="a model other than the MLP 784-32-10")
    parser.add_argument("--add", action="append", default=[], metavar="RULE", help="a rule, or LABEL: OVERRIDES")


def selected(given: argparse.Namespace) -> Entries:
    """Choose what competes by the options of `add_selection`.

    Raises:
        SettingError: If an option names what is not there, or is not a number.
    """
    for option in ("rules", "attacks", "knows", "skew"):
        if listed(getattr(given, option)) == []:
            raise SettingError(f"--{option} needs names separated by commas, got {getattr(given, option)!r}.")
    chosen = [f"{group}={name}" for group in ("data", "model") if (name := getattr(given, group)) is not None]
    return Entries.choose(
        listed(given.rules),
        listed(given.attacks),
        given.add,
        [*chosen, *spelled(given.overrides)],
        given.quick,
        listed(given.knows),
        given.protocol,
        again=None if given.again is None else _share("--again", given.again),
        told=multiples(given.told),
        skew=listed(given.skew),
        byzantine=_numbers("--byzantine", given.byzantine, int, "whole numbers above 0"),
        seeds=None if given.seeds is None else seeds_of(given.seeds),
        rates=_numbers("--rates", given.rates, float, "numbers above 0"),
        radii=_numbers("--radii", given.radii, float, "numbers above 0"),
    )


def multiples(text: str | None) -> list[float] | None:
    """Read --told: multiples of the true number of attackers."""
    return _numbers("--told", text, float, "numbers from 0", zero=True)


def _share(option: str, text: str) -> float:
    if (share := number(text)) is not None and 0 <= share <= 1:
        return share
    advice = "; settings come before it" if "=" in text else ""  # they are taken for its value
    raise SettingError(f"{option} needs a share from 0 to 1, got {text!r}{advice}.")


def _numbers(
    option: str, text: str | None, kind: type[int] | type[float], what: str, zero: bool = False
) -> list[Any] | None:
    """Read numbers separated by commas."""
    try:
        found = [kind(number) for number in listed(text) or []]
        if all((zero or number > 0) and 0 <= number < inf for number in found):
            return None if text is None else list(dict.fromkeys(found))
    except ValueError:
        pass
    raise SettingError(f"{option} needs {what} separated by commas, got {text!r}.")
