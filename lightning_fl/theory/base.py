"""What the papers' theorems share: a bound that may not be guaranteed, checks, and estimates from recorded gradients.

An estimate is the largest value over what was recorded, so it may be less than the theorem's constant.  It is enough
for the runs recorded: the proofs use theta, G and sigma only at points that a run visits (local models included).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.errors import SettingError


@dataclass(frozen=True)
class Bound:
    """The right-hand side of a theorem, or why the theorem says nothing.

    Args:
        value: The bound; None if it is not guaranteed.
        reason: "not guaranteed: needs ..." with the conditions that fail; None if none does.
    """

    value: float | None
    reason: str | None = None

    def __str__(self) -> str:
        return self.reason or f"{self.value:g}"


def not_guaranteed(needs: Mapping[str, bool]) -> Bound | None:
    """Name the conditions that fail, if any do.

    >>> print(not_guaranteed({"C_a > 0.5, got 0.4": False, "lambda < 1, got 0.1": True}))
    not guaranteed: needs C_a > 0.5, got 0.4
    """
    unmet = [need for need, holds in needs.items() if not holds]
    return Bound(None, f"not guaranteed: needs {'; '.join(unmet)}") if unmet else None


def check_numbers(
    theorem: str, least: int | float = -inf, above: int | float = -inf, **values: int | float | Sequence[float]
) -> None:
    """Check that every number (or every one of a non-empty list) is finite, at least ``least`` and above ``above``.

    Raises:
        SettingError: If one is not.
    """
    for name, value in values.items():
        numbers = list(value) if isinstance(value, Iterable) else [value]
        if not numbers or not all(isfinite(x) and x >= least and x > above for x in numbers):
            limit = f" > {above:g}" if above > -inf else f" >= {least:g}" if least > -inf else ""
            raise SettingError(f"{theorem} needs finite {name}{limit}, got {value}.")


def check_share(theorem: str, c_bar: float) -> None:
    """Check that the Byzantine share of the data weight is one.

    Raises:
        SettingError: If it is not in [0, 1].
    """
    if not 0 <= c_bar <= 1:
        raise SettingError(f"{theorem} needs a share C_bar in [0, 1], got {c_bar}.")


def finite(gradients: Float[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Check gradients that were recorded, and return them in float64.

    Raises:
        SettingError: If one is NaN or inf.
    """
    if not gradients.isfinite().all():
        raise SettingError("an estimate needs finite gradients, got NaN or inf; record honest clients only.")
    return gradients.double()


def gradient_bound(gradients: Float[Tensor, "*rounds n d"]) -> float:
    """Estimate G = max ||grad F_m||.

    Args:
        gradients: Honest clients' full gradients, of as many rounds (and local steps) as were recorded.

    Returns:
        The largest norm.

    Raises:
        SettingError: If a gradient is not finite.
    """
    return finite(gradients).norm(dim=-1).max().item()


def heterogeneity(gradients: Float[Tensor, "*rounds n d"], objective: Float[Tensor, "*rounds d"]) -> float:
    """Estimate theta = max ||grad F_m - grad F|| (RAGA, assumption 5; BOBA's outer variation delta likewise).

    Args:
        gradients: Honest clients' full gradients.
        objective: The gradient of F at the same points.

    Returns:
        The largest distance.

    Raises:
        SettingError: If a gradient is not finite.
    """
    return gradient_bound(gradients.double() - objective.double()[..., None, :])


def gradient_noise(
    samples: Float[Tensor, "draws *rounds n d"], gradients: Float[Tensor, "*rounds n d"]
) -> Float64[Tensor, " n"]:
    """Estimate sigma_m, sigma_m^2 = max_t E||grad F_m(w^t; xi) - grad F_m(w^t)||^2, for each client.

    Args:
        samples: Stochastic gradients, drawn repeatedly at the same points.
        gradients: The full gradients there.

    Returns:
        One number per client.  RAGA's sigma and BOBA's epsilon are the largest of them.

    Raises:
        SettingError: If a gradient is not finite.

    >>> import torch
    >>> gradient_noise(torch.tensor([[[1.0, 0.0]], [[5.0, 0.0]]]), torch.tensor([[3.0, 0.0]]))
    tensor([2.], dtype=torch.float64)
    """
    variances = finite(samples.double() - gradients.double()).square().sum(-1).mean(0)
    return variances.reshape(-1, variances.shape[-1]).amax(0).sqrt()
