"""ByzAttack-1: a frozen ensemble of attacks on a rule of which nothing is known but its answers.

Fixed attacks of the literature first, then searches that ask the rule, then a walk from the worst rows found, with what
is left of the budget.  A member is never changed: another ensemble gets another number.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_fl import seeding
from lightning_fl.adversary.adaptive import Adaptive
from lightning_fl.adversary.base import Adversary
from lightning_fl.adversary.fang import Fang
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.mimic import MimicLearned
from lightning_fl.adversary.min_max import Direction, MinMax, MinSum
from lightning_fl.adversary.non_finite import NonFinite
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.adversary.rop import Rop
from lightning_fl.adversary.same_value import SameValue
from lightning_fl.adversary.sign_flip import SignFlip
from lightning_fl.yardstick.box import ClosedBox

UNBOUNDED = 1e9
"""A kappa from which a rule is called unbounded, and no worse rows are looked for; proofs give at most 6 (1 + f)^2."""

NAME = "ByzAttack-1"
Member = Callable[[ClosedBox, int], None]


def _sends(attack: Adversary) -> Member:
    """One of the library's attacks, which gets the box in place of the server's rule."""

    def member(box: ClosedBox, seed: int) -> None:
        box.ask(attack(box.honest.rows, box.f, rule=box, seed=seed))

    return member


def _alone(attack: Adversary) -> Member:
    """The same from one client, while the others send the honest mean."""

    def member(box: ClosedBox, seed: int) -> None:
        rows = box.mean.repeat(box.f, 1)
        rows[0] = attack(box.honest.rows, 1, rule=box, seed=seed)[0]
        box.ask(rows)

    return member


def _copies(box: ClosedBox, seed: int) -> None:
    """Copies of each honest client in turn, of at most 50: mimic, whoever is the best to copy."""
    for row in box.honest.rows[:50]:
        box.ask(row.expand(box.f, -1))


def _corners(box: ClosedBox, seed: int) -> None:
    """Beyond all honest rows in each coordinate, on the side that harms more: the worst of a monotone rule."""
    reach = (box.honest.rows - box.mean).abs().amax(0)
    for t in (0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 10.0, 1e3, 1e6):
        up, down = (box.ask((box.mean + way * t * reach).expand(box.f, -1)).answer - box.mean for way in (1, -1))
        sides = torch.where(up.abs() >= down.abs(), 1.0, -1.0).to(reach)
        box.ask((box.mean + t * sides * reach).expand(box.f, -1))


def _walk(box: ClosedBox, seed: int) -> None:
    """From the worst rows found, steps that do more harm; each moves some of the forged rows, in one of five ways."""
    if not box.found:
        return
    _, best = box.ranked()[0]
    draw = seeding.generator(seed, "walk")
    honest, std = box.honest.rows, box.std

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=std.dtype).to(std)

    step = 0.3
    while best.kappa < UNBOUNDED:
        rows = best.rows
        some = (torch.rand(box.f, 1, generator=draw) < 0.5).to(rows.device)
        size = step * float(torch.randn((), generator=draw))
        match int(torch.randint(5, (), generator=draw)):
            case 0:  # any way
                moved = rows + size * std * normal(box.f, box.honest.d)
            case 1:  # farther from the honest mean, or nearer to it
                moved = box.mean + torch.tensor(size).exp().item() * (rows - box.mean)
            case 2:  # where the answer has gone already, by an honest row's distance or so
                away = best.answer - box.mean
                moved = rows + size * away / away.norm().clamp(min=1e-30) * std.norm()
            case 3:  # towards an honest row
                target = honest[int(torch.randint(len(honest), (), generator=draw))]
                moved = rows + size * (target - rows)
            case _:  # towards or away from another forged one
                moved = rows + size * (rows[torch.randperm(box.f, generator=draw)] - rows)
        found = box.ask(torch.where(some, moved, rows))
        if found.kappa > best.kappa:
            best, step = found, min(2 * step, 3.0)
        else:
            step = max(0.97 * step, 1e-3)


_DIRECTIONS: tuple[Direction | None, ...] = (None, "inverse_std", "inverse_unit", "inverse_sign")
_ATTACKS: dict[str, Adversary] = {
    **{f"non_finite {kind}": NonFinite(kind) for kind in ("nan", "inf", "one_coordinate", "huge")},
    "zero": SameValue(0.0),
    **{f"same_value {value:g}": SameValue(value) for value in (1.0, 1e3, 1e6, 1e12)},
    **{f"ipm {factor:g}": Ipm(factor) for factor in (0.1, 0.5, 1.1, 2.0, 10.0, 100.0)},
    "lie": Lie(),
    "lie minus": Lie(sign="minus"),
    **{f"lie {z:g}": Lie(z) for z in (0.3, 0.7, 1.0, 1.5, 3.0)},
    **{f"lie drawn {z:g}": Lie(z, drawn=True) for z in (0.7, 3.0)},
    **{f"min_max {p or 'std'}": MinMax(direction=p) for p in _DIRECTIONS},
    **{f"min_sum {p or 'std'}": MinSum(direction=p) for p in _DIRECTIONS},
    **{f"fang {variant}": Fang(variant) for variant in ("krum", "median")},
    **{f"rop {angle:g}": Rop(angle=angle) for angle in (90.0, 180.0)},
    **{f"rop {z:g} {angle:g}": Rop(z, angle) for z in (3.0, 30.0) for angle in (90.0, 180.0)},
    "mimic_learned": MimicLearned(),
    "sign_flip": SignFlip(),
    "sign_flip in turn": SignFlip(in_turn=True),
    "gaussian 200": Gaussian(200.0, "updates"),
    "gaussian 9.49": Gaussian(9.486833, "updates"),
}
_SEARCHES: dict[str, Adversary] = {
    "opt_ipm": OptIpm(),
    "opt_ipm back": OptIpm(step=-10.0),
    "opt_alie": OptAlie(),
    "opt_alie back": OptAlie(step=-10.0),
    "one_coordinate": OneCoordinate("one"),
    "every coordinate": OneCoordinate("all"),
    "adaptive": Adaptive(),
    "adaptive ascent": Adaptive(damage="ascent"),
}
MEMBERS: dict[str, Member] = {
    **{name: _sends(attack) for name, attack in _ATTACKS.items()},
    **{f"one client {kind}": _alone(NonFinite(kind)) for kind in ("nan", "inf", "huge")},
    "copies": _copies,
    "corners": _corners,
    **{name: _sends(attack) for name, attack in _SEARCHES.items()},
    "walk": _walk,
}
"""By name; each is given the box and a seed, and asks."""
