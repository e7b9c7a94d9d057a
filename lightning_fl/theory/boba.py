"""BOBA's guarantee: Theorem 5.5, the expected squared error of one aggregation.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024.
arXiv:2208.12932.

Client i's expected gradient is E g_i = sum_z p_iz E gamma_z, gamma_z the server's gradient on its samples of class z;
E mu is the mean of E g_i over the honest clients H.
"""
# ruff: noqa: N806 (the paper's letters)

from itertools import combinations, islice
from math import comb, isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.theory.base import Bound, check_numbers, finite, not_guaranteed

_MOST_SUBSETS = 100_000


def error_bound(
    *,
    n: int,
    f: int,
    n_byzantine: int,
    c: int,
    p_min: float,
    least_p_hat: float,
    eps: float,
    eps_s: float,
    delta: float,
    delta_s: float,
    sigma: float,
    sigma_s: float,
) -> Bound:
    """Bound E||mu_hat - E mu||^2 of BOBA's update mu_hat, whatever Byzantine clients send (Theorem 5.5).

    Args:
        n: Clients, |H| + |B|.
        f: Byzantine clients that the rule tolerates.
        n_byzantine: |B|, how many there are.
        c: Classes, >= 2.
        p_min: The rule's threshold, <= 0.
        least_p_hat: Smallest p_hat_hz of any honest client h (`BobaSolution.label_distributions`), or less.
        eps: Inner variation of honest clients, E||g_i - E g_i||^2 <= eps^2; see `gradient_noise`.
        eps_s: The same of the server's class gradients.
        delta: Outer variation, ||E g_i - E mu|| <= delta for honest i; see `heterogeneity`.
        delta_s: The same of the class gradients, ||E gamma_z - E mu|| <= delta_s.
        sigma: Least (c - 1)-th singular value of any n - 2f of the E g_i, centred (assumption 5.3); see
            `least_singular_value`.
        sigma_s: The same of the c class gradients (appendix B).

    Returns:
        C_1 eps^2 + C_2 eps_s^2 + C_3 beta^2 delta_s^2 with beta = |B| / n and

            C_1 = 4 + 8 (1 / (n - 2f) + delta^2 / sigma^2) (2 (n - f) + |H|),
            C_2 = 16 (1 / (n - 2f) + delta^2 / sigma^2) (n - f) + 16 c (1 + c |p_min|)^2 beta^2,
            C_3 = 16 (1 + c |p_min|)^2;

        not guaranteed unless |B| <= f, n - 2f >= c, sigma > 0, sigma_s > 0 and -inf < p_min <= least_p_hat.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        The constants are those of a round that rejects no honest client, hence p_min <= least_p_hat (Lemma B.17: about
        -sqrt(c) eps / sigma_s).  With p_min = 0, say, noise rejects clients of a single class, and the error is of the
        order of delta however small eps is.

    >>> settings = dict(n=6, f=2, n_byzantine=2, c=2, p_min=-0.5, least_p_hat=0.0)
    >>> print(error_bound(**settings, eps=0.0, eps_s=0.0, delta=1.0, delta_s=3.0, sigma=1.0, sigma_s=1.0))
    64
    """
    check_numbers("boba", above=0, n=n)
    check_numbers(
        "boba", least=0, f=f, eps=eps, eps_s=eps_s, delta=delta, delta_s=delta_s, sigma=sigma, sigma_s=sigma_s
    )
    check_numbers("boba", least=2, c=c)
    if not 0 <= n_byzantine < n or not p_min <= 0:
        raise SettingError(f"boba needs 0 <= |B| < n and p_min <= 0, got |B|={n_byzantine}, n={n} and p_min={p_min}.")
    needs = {
        f"|B| <= f, got |B|={n_byzantine} and f={f}": n_byzantine <= f,
        f"n - 2f >= c, got n={n}, f={f} and c={c}": n - 2 * f >= c,
        f"sigma > 0 and sigma_s > 0, got {sigma:.6g} and {sigma_s:.6g}": sigma > 0 and sigma_s > 0,
        f"-inf < p_min <= p_hat of every honest client, got {p_min:.6g} and {least_p_hat:.6g}": (
            isfinite(p_min) and p_min <= least_p_hat
        ),
    }
    if refusal := not_guaranteed(needs):
        return refusal
    beta, honest = n_byzantine / n, n - n_byzantine
    fit = 1 / (n - 2 * f) + delta**2 / sigma**2
    C_1 = 4 + 8 * fit * (2 * (n - f) + honest)
    C_3 = 16 * (1 + c * abs(p_min)) ** 2
    C_2 = 16 * fit * (n - f) + c * C_3 * beta**2
    return Bound(C_1 * eps**2 + C_2 * eps_s**2 + C_3 * beta**2 * delta_s**2)


def least_singular_value(expected: Float[Tensor, "h d"], m: int, c: int) -> float:
    """Compute sigma of assumption 5.3: the least (c - 1)-th singular value of any m of the rows, centred.

    Args:
        expected: Expected gradients: of the honest clients with m = n - 2f, or of the c classes with m = c.
        m: How many rows are taken, 1 <= m <= h.
        c: Classes, >= 2.

    Returns:
        The least over all C(h, m) subsets; 0 where it is rounding.

    Raises:
        SettingError: If m is out of range, the subsets are more than 100,000, or a gradient is not finite.

    >>> round(least_singular_value(torch.tensor([[0.0, 1.0], [0.0, 3.0], [0.0, 7.0]]), m=2, c=2) ** 2, 6)
    2.0
    """
    h = len(expected)
    if not 1 <= m <= h or c < 2:
        raise SettingError(f"least_singular_value needs 1 <= m <= h and c >= 2, got m={m}, h={h} and c={c}.")
    if comb(h, m) > _MOST_SUBSETS:
        raise SettingError(
            f"least_singular_value looks at every subset: C({h}, {m}) = {comb(h, m):.3g} of them, at most "
            f"{_MOST_SUBSETS:,} are served; take fewer clients."
        )
    rows = torch.linalg.qr(finite(expected).T, mode="r").R.T  # the same up to a rotation, in at most h dimensions
    if c - 1 > min(m, rows.shape[1]):
        return 0.0
    subsets, least = combinations(range(h), m), torch.inf
    while chunk := list(islice(subsets, 4096)):
        taken = rows[torch.tensor(chunk, device=rows.device)]
        values = torch.linalg.svdvals(taken - taken.mean(1, keepdim=True))
        least = min(least, values[:, c - 2].min().item())
    return least if least > h * torch.finfo(rows.dtype).eps * rows.norm().item() else 0.0
