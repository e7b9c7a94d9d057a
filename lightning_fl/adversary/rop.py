"""ROP, relocated orthogonal perturbation: across the direction in which clipping around the last update trusts.

Kerem Ozfatura, Emre Ozfatura, Alptekin Kupcu, Deniz Gunduz. Byzantines can also Learn from History: Fall of Centered
Clipping in Federated Learning. IEEE TIFS 2024. arXiv:2208.09894.
"""

from math import cos, inf, radians, sin

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.errors import SettingError, check_finite
from lightning_fl.updates.updates import Updates


def rop(
    honest: Float[Tensor, "h d"],
    n_byzantine: int,
    previous: Float[Tensor, " d"] | None = None,
    factor: float | None = None,
    angle: float = 90.0,
    location: float = 0.5,
    reference: float = 0.9,
) -> Float[Tensor, "b d"]:
    """Send a place between the last update u and the honest mean m, moved by a vector of length z across the two.

    The place is pi u + (1 - pi) m, the vector z q.  With the reference r = lambda u + (1 - lambda) m and p the vector
    of ones minus its projection on r, at unit length,

        q = sin(theta) p + cos(theta) r / ||r||:

    at theta = 90 degrees across r, at 180 straight against it.

    Args:
        honest: One honest update per row.
        n_byzantine: How many copies to send.
        previous: u, the last round's aggregated update.  None: in the first round m stands in for it.
        factor: z, the length of the perturbation in the unit of updates, at least 0; against centred clipping about its
            radius.  None: LIE's own factor, and 0 where that is negative, with one attacker and few clients.
        angle: theta in degrees.
        location: pi in [0, 1].
        reference: lambda in [0, 1].

    Returns:
        The forged updates, one vector expanded to n_byzantine rows.

    Raises:
        SettingError: If a setting is out of range, or factor is None and n < 3 or b > h.

    Note:
        The authors' code starts from theta = 180; 90 is the orthogonal perturbation of the title.  A direction that
        does not exist (r = 0, or the ones along r) counts as 0.

    The mean is (2, 0); ones minus their projection on it point along (0, 1):

    >>> rop(torch.tensor([[1.0, 0.0], [3.0, 0.0]]), n_byzantine=1, factor=5.0)
    tensor([[2., 5.]])
    """
    return _rop(honest.mean(0), len(honest), n_byzantine, previous, factor, angle, location, reference)


def _rop(
    mean: Tensor,
    h: int,
    n_byzantine: int,
    previous: Tensor | None,
    factor: float | None,
    angle: float,
    location: float,
    reference: float,
) -> Tensor:
    _check(factor, angle, location, reference)
    if factor is None:
        factor = max(lie_factor(h, n_byzantine), 0.0)
    last = mean if previous is None else previous.to(mean)
    along = _unit((reference * last + (1 - reference) * mean).double())
    # A projection of rounding is none: ones along the reference have nothing across it.
    across = 1 - along.sum() * along
    across = _unit(across) if across.norm() > 1e-6 * len(mean) ** 0.5 else torch.zeros_like(across)
    theta = radians(angle)
    perturbation = (sin(theta) * across + cos(theta) * along).to(mean)  # at unit length, as these two are orthogonal
    return (location * last + (1 - location) * mean + factor * perturbation).expand(n_byzantine, -1)


def _unit(vector: Tensor) -> Tensor:
    length = vector.norm()
    return vector / length if length > 0 else torch.zeros_like(vector)


def _check(factor: float | None, angle: float, location: float, reference: float) -> None:
    check_finite("rop's angle", angle)
    if not (factor is None or 0 <= factor < inf):
        raise SettingError(f"rop needs a finite factor of at least 0, or null for LIE's, got {factor}.")
    if not (0 <= location <= 1 and 0 <= reference <= 1):
        raise SettingError(f"rop needs location and reference in [0, 1], got {location} and {reference}.")


class Rop(Adversary):
    """Perturb the honest mean across the last update; see `rop`."""

    def __init__(self, factor: float | None = None, angle: float = 90.0, location: float = 0.5, reference: float = 0.9):
        _check(factor, angle, location, reference)
        self.factor = factor
        self.angle = angle
        self.location = location
        self.reference = reference

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check that LIE's factor exists where it is used; see the base class."""
        if self.factor is None:
            lie_factor(n_honest, n_byzantine)

    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge one round's updates; see the base class."""
        return _rop(
            honest.by_column(lambda rows: rows.mean(0)),
            honest.n,
            n_byzantine,
            context.previous_update,
            self.factor,
            self.angle,
            self.location,
            self.reference,
        )
