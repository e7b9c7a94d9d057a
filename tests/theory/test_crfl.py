from math import erf, inf, log, sqrt

import pytest

from lightning_fl import SettingError
from lightning_fl.aggregator.crfl import norm_limit
from lightning_fl.theory.crfl import trigger_radius, vote_margin

# MNIST: 20 clients with 3,000 samples, 30 batches of 100 of which 5 are poisoned, round 10 of 100.
MNIST = {"attacked": 10, "learning_rate": 0.001, "n_steps": 30, "poisoned": 0.05, "factor": 10.0}


def slow(p_a, p_b, rhos, shares, sigma, sigma_of_votes, t_adv=10, eta=0.001, tau=30, q=0.05, gamma=10.0):
    """The equation, factor by factor."""
    top = -log(1 - (sqrt(p_a) - sqrt(p_b)) ** 2) * sigma * sigma
    rho = rhos[t_adv]
    bottom = 2 * len(shares) * tau**2 * (2 + 2 * rho + rho * rho) * sum(p * p for p in shares)
    bottom *= gamma**2 * eta**2 * q**2
    last = max(rhos)
    for t in range(t_adv + 1, last + 1):
        s = sigma_of_votes if t == last else sigma
        bottom *= erf(rhos[t] / s / sqrt(2))  # 2 Phi(x) - 1
    return sqrt(top / bottom)


@pytest.mark.parametrize(("votes_a", "votes_b"), [(0.9, 0.08), (0.99, 0.005)])
@pytest.mark.parametrize("n_attackers", [1, 2])
@pytest.mark.parametrize(("sigma", "n_rounds"), [(0.01, 100), (2.0, 20)])
def test_agrees_with_the_equation(votes_a, votes_b, n_attackers, sigma, n_rounds):
    u = sqrt(log(1000) / 2000)
    assert vote_margin(1000) == pytest.approx(u)
    p_a, p_b = votes_a - u, votes_b + u
    rhos = {t: min(15.0, 0.1 * t + 2) for t in range(1, n_rounds + 1)}
    limits = [norm_limit(t, 0.1, 2.0, 15.0) for t in range(1, n_rounds + 1)]
    shares = [1 / 20] * n_attackers
    found = trigger_radius(p_a, p_b, limits=limits, shares=shares, sigma=sigma, sigma_of_votes=sigma, **MNIST)
    assert found.value == pytest.approx(slow(p_a, p_b, rhos, shares, sigma, sigma), rel=1e-10)


def test_more_attackers_and_later_rounds_certify_less():
    def radius(n_attackers, n_rounds):
        limits = [2.0] * n_rounds
        return trigger_radius(
            0.9, 0.05, limits=limits, shares=[0.05] * n_attackers, sigma=2.0, sigma_of_votes=2.0, **MNIST
        ).value

    assert radius(2, 20) == pytest.approx(radius(1, 20) / 2)
    assert radius(1, 21) > radius(1, 20)  # noise makes the model forget
    assert radius(1, 10) < radius(1, 11)  # attacked in the last round: nothing is forgotten


def test_an_attack_in_the_last_round_meets_the_votes_noise_alone():
    def radius(sigma, sigma_of_votes):
        some = {"limits": [2.0] * 20, "shares": [0.05], **MNIST} | {"attacked": 20}
        return trigger_radius(0.9, 0.05, sigma=sigma, sigma_of_votes=sigma_of_votes, **some).value

    assert radius(5.0, 0.5) == radius(0.5, 0.5) == pytest.approx(radius(0.5, 2.0) / 4)


def test_where_it_says_nothing():
    some = {"limits": [2.0] * 20, "shares": [0.05], **MNIST}
    assert "needs p_a > p_b" in str(trigger_radius(0.4, 0.4, **some))
    assert "an attacked round from 1 to 20, got 21" in str(trigger_radius(0.9, 0.1, **some | {"attacked": 21}))
    assert trigger_radius(1.0, 0.0, **some).value == inf
    with pytest.raises(SettingError, match="crfl needs finite sigma > 0"):
        trigger_radius(0.9, 0.1, sigma=0.0, **some)
    with pytest.raises(SettingError, match=r"crfl needs a probability alpha below 1, got 1\.5"):
        vote_margin(1000, 1.5)
    with pytest.raises(SettingError, match="crfl needs a share p_a of at most 1, got 90; divide"):
        trigger_radius(90.0, 5.0, **some)
