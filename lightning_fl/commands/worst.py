"""Search for what Byzantine clients could do to a rule, whoever wrote it.

lightning-fl worst my_rule.py:my_rule                a function that makes a vector (d,) of a matrix (n, d)
lightning-fl worst byzfl:TrMean                      a class of a package; it is told f if it takes one
lightning-fl worst lightning_fl.aggregator:Krum --n 25 --f 5 --d 1000
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, update_wrapper
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isclass, signature
from pathlib import Path
from typing import Any

from lightning_fl.commands import out_folder, parser_of
from lightning_fl.errors import SettingError
from lightning_fl.run.explain import explained
from lightning_fl.text import meant, shown


def rule_of(place: str, f: int) -> Callable[[Any], Any]:
    """Import a rule.

    Args:
        place: ``FILE.py:NAME`` or ``PACKAGE.MODULE:NAME``, of a function, an object that can be called, or a class.
        f: What a function or a class whose constructor takes ``f`` is told.

    Raises:
        SettingError: If it is not there.
    """
    where, colon, name = place.rpartition(":")
    if not colon or not where:
        raise SettingError(f"worst needs FILE.py:NAME or MODULE:NAME, got {place}.")
    sys.path.insert(0, str(Path(where).resolve().parent if where.endswith(".py") else Path.cwd()))
    if not where.endswith(".py"):
        try:
            module = import_module(where)
        except ModuleNotFoundError as error:
            raise SettingError(f"worst needs a module, got {where}: {error}; install it, or name a file.") from error
    elif not Path(where).is_file():
        raise SettingError(f"worst needs a file, got {where}, which is not there.")
    else:
        spec = spec_from_file_location(Path(where).stem, where)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module  # what the file defines can be copied
        spec.loader.exec_module(module)
    rule: Any = getattr(module, name, None)
    if not callable(rule):
        there = [known for known, found in vars(module).items() if callable(found)]
        raise SettingError(
            f"worst needs a rule that can be called, got none named {name} in {where}{meant(name, there)}"
        )
    told = False
    with suppress(ValueError):  # what is built in has no signature
        told = "f" in signature(rule).parameters
    if isclass(rule):
        made: Any = rule
        try:
            rule = made(f=f) if told else made()
        except TypeError as error:
            raise SettingError(
                f"worst makes a rule with f alone, got {name}, which takes more ({error}); name a function."
            ) from error
    elif told:
        rule = update_wrapper(partial(rule, f=f), rule)  # its name is in the title
    found: Callable[[Any], Any] = rule
    return found


def search(place: str, n: int, f: int, d: int, seed: int, budget: int | None, out: Path) -> None:
    """Print what is found over all families, and draw it."""
    rule = rule_of(place, f)
    from lightning_fl import files, plot
    from lightning_fl.yardstick.worst import BUDGET, kappa

    found = kappa(rule, n, f, d, seed=seed, budget=BUDGET if budget is None else budget)
    print(found)
    lines = {"proven": found.worst.proven, "no rule is below": found.worst.least}
    kappas = {name: each.kappa for name, each in found.families.items()}
    title = f"{found.worst.ensemble} against {found.worst.rule}, n = {n}, f = {f}, d = {d:,}"
    files.save(out / "worst.pt", {name: (each.honest, each.rows) for name, each in found.families.items()})
    figure = plot.worst(kappas, {k: v for k, v in lines.items() if v is not None}, found.worst, title)
    plot.save(figure, out / "worst.png")
    print(*map(shown, [out / "worst.png", out / "worst.pt"]), sep="\n")


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("rule", help="FILE.py:NAME or MODULE:NAME")
    parser.add_argument("--n", type=int, default=25, help="rows in all (25)")
    parser.add_argument("--f", type=int, default=5, help="forged ones (5)")
    parser.add_argument("--d", type=int, default=100, help="their length (100)")
    parser.add_argument("--seed", type=int, default=0, help="of honest rows and attacks (0)")
    parser.add_argument("--budget", type=int, help="how often the rule is asked at most, on each family (1000)")
    parser.add_argument("--out", default="runs/worst", help="folder for the picture and the rows (runs/worst)")
    with explained():
        given = parser.parse_args()
        search(given.rule, given.n, given.f, given.d, given.seed, given.budget, out_folder(given.out))
