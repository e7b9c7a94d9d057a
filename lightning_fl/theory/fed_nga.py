"""Fed-NGA's guarantees: Theorem 3.5 (smooth losses) and Theorem 3.7 (strongly convex ones), by exact sums.

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Li Shen, Puning Zhao, Jie Xu, Han Hu. Byzantine-resilient Federated Learning
Employing Normalized Gradients on Non-IID Datasets. 2024. arXiv:2408.09539.

Both are about w^{t+1} = w^t - eta^t sum_m alpha_m g_m / ||g_m||, where an honest g_m is the client's *full* gradient
(no theorem covers mini-batches) and a Byzantine one is anything.  F is the alpha-weighted loss of all clients, the
Byzantine ones' data included; C_bar is their share of the weight, C_a = 1 - C_bar.
"""
# ruff: noqa: N803 (the paper's letters)

from collections.abc import Sequence
from math import fsum, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.theory.base import Bound, check_numbers, check_share, finite, not_guaranteed


def descent(theta: float, C_bar: float) -> float:
    """Compute k = (2 - theta^2 / 2) C_a - 1: F falls by eta k ||grad F|| - L eta^2 / 2 per round, or more (31).

    >>> round(descent(theta=1.0, C_bar=0.2), 6)
    0.2
    """
    return (2 - theta**2 / 2) * (1 - C_bar) - 1


def mean_gradient_bound(rates: Sequence[float], drop: float, L: float, theta: float, C_bar: float) -> Bound:
    """Bound sum_t eta^t ||grad F(w^t)|| / sum_t eta^t over t = 0..T-1 for L-smooth losses (Theorem 3.5, equation 18).

    Args:
        rates: eta^0 .. eta^{T-1}, > 0.
        drop: F(w^0) - F(w^T), or more, such as F(w^0) - inf F.
        L: Smoothness, > 0.
        theta: Directional heterogeneity of the honest clients, >= 0; see `directional_heterogeneity`.
        C_bar: Byzantine share of the data weight, in [0, 1].

    Returns:
        (drop + L / 2 sum (eta^t)^2) / (k sum eta^t); not guaranteed unless k > 0 (see `descent`).

    Raises:
        SettingError: If an argument is out of range.

    >>> print(mean_gradient_bound([0.5, 0.5], drop=1.0, L=2.0, theta=0.0, C_bar=0.25))
    3
    >>> print(mean_gradient_bound([0.5, 0.5], drop=1.0, L=2.0, theta=1.0, C_bar=0.375))
    not guaranteed: needs k = (2 - theta^2 / 2) C_a - 1 > 0, got -0.0625
    """
    check_numbers("fed_nga", above=0, rates=rates, L=L)
    check_numbers("fed_nga", least=0, theta=theta)
    check_numbers("fed_nga", drop=drop)
    check_share("fed_nga", C_bar)
    k = descent(theta, C_bar)
    if refusal := not_guaranteed({f"k = (2 - theta^2 / 2) C_a - 1 > 0, got {k:.6g}": k > 0}):
        return refusal
    return Bound((drop + L / 2 * fsum(eta**2 for eta in rates)) / (k * fsum(rates)))


def contraction(L: float, mu: float, G: float, theta: float, C_bar: float) -> float:
    """Compute gamma = 2 ((mu + L - L theta) C_a - L) / G of Theorem 3.7.

    >>> round(contraction(L=1.2, mu=1.0, G=5.0, theta=0.05, C_bar=0.2), 6)
    0.2048
    """
    return 2 * ((mu + L - L * theta) * (1 - C_bar) - L) / G


def distance_bound(
    rates: Sequence[float], distance: float, L: float, mu: float, G: float, theta: float, C_bar: float
) -> Bound:
    """Bound ||w^T - w*||^2 for strongly convex losses (Theorem 3.7 (i), equation 20).

    Args:
        rates: eta^0 .. eta^{T-1}, > 0.
        distance: ||w^0 - w*||, w* the minimiser of F.
        L: Smoothness, > 0.
        mu: Strong convexity, 0 <= mu <= L.
        G: Bound of ||grad F(w^t)||, > 0.
        theta: Directional heterogeneity of the honest clients, >= 0; see `directional_heterogeneity`.
        C_bar: Byzantine share of the data weight, in [0, 1].

    Returns:
        a_T of a_0 = distance^2, a_{t+1} = (1 - gamma eta^t) a_t + (eta^t)^2; not guaranteed unless gamma > 0 (see
        `contraction`) and every eta^t < 1 / gamma.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        A constant rate leads at linear speed to a ball of squared radius eta / gamma, a falling rate to the minimiser
        at about the speed of eta^T / gamma.  Remark 3.8's "zero gap at the rate of the product" is not proved.

    >>> print(distance_bound([0.5, 0.5], distance=2.0, L=1.0, mu=1.0, G=1.0, theta=0.0, C_bar=0.25))
    1.375
    """
    gamma = _checked_contraction(rates, distance, L, mu, G, theta, C_bar)
    if refusal := _convex_needs(gamma, max(rates)):
        return refusal
    a = distance**2
    for eta in rates:
        a = (1 - gamma * eta) * a + eta**2
    return Bound(a)


def mean_distance_bound(
    rates: Sequence[float], distance: float, L: float, mu: float, G: float, theta: float, C_bar: float
) -> Bound:
    """Bound sum_t eta^t ||w^t - w*||^2 / sum_t eta^t over t = 0..T (Theorem 3.7 (ii), equation 21).

    Args:
        rates: eta^0 .. eta^T, > 0: one more than there were rounds.
        distance: ||w^0 - w*||, w* the minimiser of F.
        L: Smoothness, > 0.
        mu: Strong convexity, 0 <= mu <= L.
        G: Bound of ||grad F(w^t)||, > 0.
        theta: Directional heterogeneity of the honest clients, >= 0; see `directional_heterogeneity`.
        C_bar: Byzantine share of the data weight, in [0, 1].

    Returns:
        (distance^2 + sum_{t<T} (eta^t)^2) / (gamma sum_{t<=T} eta^t); not guaranteed unless gamma > 0 and
        eta^T < 1 / gamma.

    Raises:
        SettingError: If an argument is out of range.

    >>> print(mean_distance_bound([0.5, 0.5, 0.5], distance=2.0, L=1.0, mu=1.0, G=1.0, theta=0.0, C_bar=0.25))
    3
    """
    gamma = _checked_contraction(rates, distance, L, mu, G, theta, C_bar)
    if refusal := _convex_needs(gamma, rates[-1]):
        return refusal
    return Bound((distance**2 + fsum(eta**2 for eta in rates[:-1])) / (gamma * fsum(rates)))


def _checked_contraction(
    rates: Sequence[float], distance: float, L: float, mu: float, G: float, theta: float, C_bar: float
) -> float:
    check_numbers("fed_nga", above=0, rates=rates, L=L, G=G)
    check_numbers("fed_nga", least=0, distance=distance, mu=mu, theta=theta)
    check_numbers("fed_nga", least=mu, L=L)
    check_share("fed_nga", C_bar)
    return contraction(L, mu, G, theta, C_bar)


def _convex_needs(gamma: float, eta: float) -> Bound | None:
    needs = {
        f"gamma = 2 ((mu + L - L theta) C_a - L) / G > 0, got {gamma:.6g}": gamma > 0,
        f"eta < 1 / gamma, got eta gamma = {gamma * eta:.6g}": gamma * eta < 1,
    }
    return not_guaranteed(needs)


def largest_share(theta: float) -> float:
    """Compute the C_bar below which Theorem 3.5 holds, (2 - theta^2) / (4 - theta^2); 0 from theta = sqrt(2) on.

    >>> largest_share(0.0), largest_share(1.0), largest_share(1.5)
    (0.5, 0.3333333333333333, 0.0)
    """
    return (2 - theta**2) / (4 - theta**2) if theta < sqrt(2) else 0.0


def largest_share_strongly_convex(L: float, mu: float, theta: float) -> float:
    """Compute the C_bar below which gamma > 0, (mu - L theta) / (mu + L - L theta); 0 from theta = mu / L on.

    Note:
        Remark 3.8 says L / (L + mu) for theta = 0, which is the smallest *honest* share, and theta < (L + mu) / L
        without attack.  What follows from gamma > 0 is C_bar < mu / (L + mu), and theta < mu / L.

    >>> largest_share_strongly_convex(L=3.0, mu=1.0, theta=0.0)
    0.25
    """
    return max((mu - L * theta) / (mu + L - L * theta), 0.0) if L * theta < mu else 0.0


def directional_heterogeneity(gradients: Float[Tensor, "*rounds n d"], objective: Float[Tensor, "*rounds d"]) -> float:
    """Estimate theta = max || grad F_m / ||grad F_m|| - grad F / ||grad F|| || (assumption 3.4).

    Args:
        gradients: Honest clients' full gradients; the proofs need no other.
        objective: The gradient of F at the same points.

    Returns:
        The largest distance between directions, in [0, 2].

    Raises:
        SettingError: If a gradient is not finite.

    Note:
        The paper ignores zero gradients.  A client's adds nothing to the step, as one at a right angle
        would: theta_m = sqrt(2).  Where grad F = 0 every theta satisfies the proofs: theta_m = 0.

    >>> round(directional_heterogeneity(torch.tensor([[3.0, 0.0], [0.0, 7.0]]), torch.tensor([5.0, 0.0])) ** 2, 6)
    2.0
    """
    rows, mean = finite(gradients), finite(objective)[..., None, :]
    lengths, length = rows.norm(dim=-1), mean.norm(dim=-1)
    thetas = (rows / lengths[..., None] - mean / length[..., None]).norm(dim=-1)
    return torch.where(length == 0, 0.0, torch.where(lengths == 0, sqrt(2), thetas)).max().item()
