"""CRFL's certificate: how long a backdoor's trigger may be without changing a prediction.

Chulin Xie, Minghao Chen, Pin-Yu Chen, Bo Li. CRFL: Certifiably Robust Federated Learning against Backdoor Attacks. ICML
2021. arXiv:2106.08283, Theorem 3 for multi-class logistic regression and the average; see
`lightning_fl.aggregator.crfl.Crfl`.
"""

from collections.abc import Sequence
from math import inf, log, prod, sqrt
from statistics import NormalDist

from lightning_fl.errors import SettingError
from lightning_fl.theory.base import Bound, check_numbers, not_guaranteed


def vote_margin(n_votes: int, alpha: float = 0.001) -> float:
    """Compute u = sqrt(ln(1/alpha) / (2 M)), by which a share of M votes may be off (Hoeffding).

    Args:
        n_votes: M, at least 1.
        alpha: Probability that it is off by more, in (0, 1).

    Raises:
        SettingError: If a number is out of range.

    >>> round(vote_margin(1000), 4)
    0.0588
    """
    check_numbers("crfl", above=0, n_votes=n_votes, alpha=alpha)
    if alpha >= 1:
        raise SettingError(f"crfl needs a probability alpha below 1, got {alpha:g}.")
    return sqrt(log(1 / alpha) / (2 * n_votes))


def trigger_radius(
    p_a: float,
    p_b: float,
    *,
    limits: Sequence[float],
    attacked: int,
    shares: Sequence[float],
    learning_rate: float,
    n_steps: int,
    poisoned: float,
    factor: float = 1.0,
    sigma: float = 0.01,
    sigma_of_votes: float = 0.01,
) -> Bound:
    """Compute the length of trigger below which the prediction is the one without the attack (equation 7).

    sqrt(-ln(1 - (sqrt(p_a) - sqrt(p_b))^2) sigma^2 / (2 R tau^2 L^2 (sum_i p_i^2) gamma^2 eta^2 (q/n)^2 Q)) with
    L^2 = 2 + 2 rho + rho^2 at rho = rho_t of the attacked round, and Q the product over the later rounds of
    2 Phi(rho_t / sigma) - 1, in the last one with the votes' sigma, which is also that of an attack in round T.

    Args:
        p_a: Lower bound on the share of votes for the predicted class: the share less `vote_margin`.
        p_b: Upper bound on that of the next one: the share plus the margin.
        limits: rho_1, ..., rho_T.
        attacked: t_adv, the round in which all attackers attack, once, from 1 to T.
        shares: p_i of the R attackers in the average.
        learning_rate: eta, the clients'.
        n_steps: tau, local steps.
        poisoned: q/n, share of a batch that is poisoned.
        factor: gamma, by which attackers scale what they send.
        sigma: Deviation of the training's noise.
        sigma_of_votes: Deviation of the noise of the copies that vote.

    Returns:
        The length, inf where p_a = 1 and p_b = 0; not guaranteed where p_a <= p_b: then the vote abstains.

    Raises:
        SettingError: If a number is out of range.
    """
    check_numbers("crfl", least=0, p_a=p_a, p_b=p_b)
    if p_a > 1:
        raise SettingError(f"crfl needs a share p_a of at most 1, got {p_a:g}; divide by the number of votes.")
    check_numbers("crfl", above=0, limits=limits, shares=shares, learning_rate=learning_rate, n_steps=n_steps)
    check_numbers("crfl", above=0, poisoned=poisoned, factor=factor, sigma=sigma, sigma_of_votes=sigma_of_votes)
    unmet = not_guaranteed(
        {
            f"p_a > p_b, got {p_a:g} and {p_b:g}": p_a > p_b,
            f"an attacked round from 1 to {len(limits)}, got {attacked}": 1 <= attacked <= len(limits),
        }
    )
    if unmet:
        return unmet
    rest = 1 - (sqrt(p_a) - sqrt(p_b)) ** 2
    if rest <= 0:
        return Bound(inf)
    rho, normal = limits[attacked - 1], NormalDist()
    noise = sigma if attacked < len(limits) else sigma_of_votes
    later = [sigma] * (len(limits) - attacked - 1) + [sigma_of_votes] * (attacked < len(limits))
    forgets = prod(2 * normal.cdf(limit / s) - 1 for limit, s in zip(limits[attacked:], later, strict=True))
    harm = learning_rate * n_steps * poisoned * factor
    steepness = 2 + 2 * rho + rho**2
    spread = 2 * len(shares) * steepness * sum(p**2 for p in shares) * harm**2 * forgets
    return Bound(sqrt(-log(rest) * noise**2 / spread))
