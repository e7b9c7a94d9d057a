"""RAGA's guarantees: Lemma 3 (the median's length), Theorem 1 (smooth losses), Theorem 2 (strongly convex ones).

Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Han Hu, Hangguan Shan, Tony Q. S. Quek, Puning Zhao. Federated Learning Resilient
to Byzantine Attacks and Data Heterogeneity. IEEE Transactions on Mobile Computing, 2025. arXiv:2403.13374.

In round t = 1, 2, ... an honest client m takes K^t local steps of rates eta_m^{t,k} and uploads the mean z_m^t of its
local stochastic gradients; w^{t+1} = w^t - eta^t z^t, where z^t is the weighted geometric median, up to eps in its
objective.  F is the alpha-weighted loss of all clients; C_bar is the Byzantine share of the weight, C_a = 1 - C_bar.
"""
# ruff: noqa: N803, N806 (the paper's letters)

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from lightning_fl.errors import SettingError
from lightning_fl.theory.base import Bound, check_numbers, check_share, not_guaranteed


def median_norm_bound(norms: Sequence[float], alphas: Sequence[float], eps: float) -> Bound:
    """Bound ||z|| for a geometric median z with whatever Byzantine rows (Lemma 3, deterministic form, equation 68).

    Args:
        norms: ||z_m|| of the honest rows, >= 0.
        alphas: Their shares alpha_m of the weight of all rows, >= 0; they sum to C_a.
        eps: z's objective is within eps of the least, >= 0.

    Returns:
        (2 sum alpha_m ||z_m|| + eps) / (2 C_a - 1); not guaranteed unless C_a > 0.5.

    Raises:
        SettingError: If an argument is out of range.

    >>> print(median_norm_bound([1.0, 3.0], [0.5, 0.25], eps=0.0))
    5
    """
    C_a, mean = _weighted(norms, alphas, eps)
    return _need_majority(C_a) or Bound((2 * mean + eps) / (2 * C_a - 1))


def median_square_bound(squares: Sequence[float], alphas: Sequence[float], eps: float) -> Bound:
    """Bound E||z||^2 for a geometric median z with whatever Byzantine rows (Lemma 3, equation 52).

    Args:
        squares: E||z_m||^2 of the honest rows, >= 0.
        alphas: Their shares alpha_m of the weight of all rows, >= 0; they sum to C_a.
        eps: z's objective is within eps of the least, >= 0.

    Returns:
        (8 C_a sum alpha_m E||z_m||^2 + 2 eps^2) / (2 C_a - 1)^2; not guaranteed unless C_a > 0.5.

    Raises:
        SettingError: If an argument is out of range.

    >>> print(median_square_bound([1.0, 9.0], [0.5, 0.25], eps=0.0))
    66
    """
    C_a, mean = _weighted(squares, alphas, eps)
    return _need_majority(C_a) or Bound((8 * C_a * mean + 2 * eps**2) / (2 * C_a - 1) ** 2)


@dataclass(frozen=True)
class Constants:
    """The constants of assumptions 1 and 3 to 6, of the attack and of the median's solver.

    Args:
        L: Smoothness of every honest client's loss and of F, > 0.
        G: ||grad F_m|| <= G for honest m, on their local models too.
        sigma: E||grad F_m(w; xi) - grad F_m(w)||^2 <= sigma^2 for honest m.
        theta: ||grad F_m(w^t) - grad F(w^t)|| <= theta for honest m.
        C_bar: Byzantine share of the data weight, in [0, 1].
        eps: The median's objective is within eps of the least; the rule `geometric_median` is told a multiple of the
            rows' radius instead.

    Raises:
        SettingError: If one is out of range.
    """

    L: float
    G: float
    sigma: float
    theta: float
    C_bar: float
    eps: float

    def __post_init__(self) -> None:
        check_numbers("raga", above=0, L=self.L)
        check_numbers("raga", least=0, G=self.G, sigma=self.sigma, theta=self.theta, eps=self.eps)
        check_share("raga", self.C_bar)

    def estimation_error(self, local_rates: Sequence[float]) -> float:
        """Compute V^t >= E||z^t - grad F(w^t)||^2 (Lemma 1, equations 22 and 44); inf unless C_a > 0.5.

        >>> constants = Constants(L=1.0, G=1.0, sigma=0.0, theta=1.0, C_bar=0.0, eps=0.0)
        >>> constants.estimation_error([0.5, 0.5])
        18.0
        """
        C_a, K = 1 - self.C_bar, len(local_rates)
        if C_a <= 0.5:
            return inf
        drift = fsum((k - 1) * fsum(eta**2 for eta in local_rates[: k - 1]) for k in range(2, K + 1)) / K
        delta = 8 * C_a**2 * (2 * self.L**2 * (self.G**2 + self.sigma**2) * drift + 2 * self.theta**2)
        return (delta + 8 * C_a**2 * self.sigma**2 + 2 * self.eps**2) / (2 * C_a - 1) ** 2

    def mean_square(self) -> float:
        """Compute the bound of E||z^t||^2 (Lemma 2, equation 45); inf unless C_a > 0.5."""
        C_a = 1 - self.C_bar
        if C_a <= 0.5:
            return inf
        return (8 * C_a**2 * (self.G**2 + self.sigma**2) + 2 * self.eps**2) / (2 * C_a - 1) ** 2


def mean_square_gradient_bound(
    rates: Sequence[float], local_rates: Sequence[Sequence[float]], drop: float, constants: Constants
) -> Bound:
    """Bound sum_t eta^t E||grad F(w^t)||^2 / sum_t eta^t over t = 1..T for smooth losses (Theorem 1, equation 21).

    Args:
        rates: eta^1 .. eta^T, > 0.
        local_rates: eta^{t,1} .. eta^{t,K} for each t, >= 0.  Where clients differ: the largest.
        drop: E[F(w^1) - F(w^{T+1})], or more, such as F(w^1) - inf F.
        constants: See `Constants`.

    Returns:
        (2 drop + sum_t (eta^t V^t + p^t (L (eta^t)^2 - eta^t) M)) / sum_t eta^t, where V^t and M are the bounds of
        Lemmas 1 and 2 and p^t = 1 where eta^t > 1 / L, else 0; not guaranteed unless C_a > 0.5.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        The theorem prints F(w^T) where its proof, a sum over t = 1..T, has F(w^{T+1}).  With F(w^T) it can fail.

    >>> constants = Constants(L=1.0, G=1.0, sigma=0.5, theta=0.25, C_bar=0.25, eps=0.0)
    >>> print(mean_square_gradient_bound([0.5, 0.5], [[0.5], [0.5]], 1.0, constants))
    8.75
    """
    _check_rates(rates, local_rates)
    check_numbers("raga", drop=drop)
    if refusal := _need_majority(1 - constants.C_bar):
        return refusal
    errors = fsum(eta * constants.estimation_error(local) for eta, local in zip(rates, local_rates, strict=True))
    excess = fsum(max(constants.L * eta**2 - eta, 0.0) for eta in rates) * constants.mean_square()
    return Bound((2 * drop + errors + excess) / fsum(rates))


def loss_gap_bound(
    rates: Sequence[float],
    local_rates: Sequence[Sequence[float]],
    distance: float,
    mu: float,
    constants: Constants,
    lambdas: Sequence[float] | None = None,
) -> Bound:
    """Bound E[F(w^T) - F(w*)] for mu-strongly convex losses (Theorem 2, equation 26).

    Args:
        rates: eta^1 .. eta^{T-1}, > 0: one for each round that led to w^T.
        local_rates: eta^{t,1} .. eta^{t,K} for each t, >= 0.  Where clients differ: the largest.
        distance: ||w^1 - w*||, w* the minimiser of F.
        mu: Strong convexity of F, 0 < mu <= L.
        constants: See `Constants`.
        lambdas: The proof's lambda^t, any numbers in (0, 1).  None: mu eta^t, as in Remark 2.

    Returns:
        L / 2 a_T of a_1 = distance^2, a_{t+1} = gamma^t a_t + (eta^t)^2 / lambda^t V^t, where
        gamma^t = (1 - 2 eta^t mu + L^2 (eta^t)^2) / (1 - lambda^t) and V^t is the bound of Lemma 1; not guaranteed
        unless C_a > 0.5 and 0 < lambda^t < 1.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        gamma^t >= 1 does not make the bound wrong, only growing.  With lambda^t = mu eta^t, gamma^t < 1 for
        eta^t < mu / L^2.

    >>> constants = Constants(L=1.0, G=1.0, sigma=0.0, theta=0.25, C_bar=0.0, eps=0.0)
    >>> print(loss_gap_bound([0.5], [[0.5]], 1.0, 1.0, constants))
    0.5
    """
    L = constants.L
    lambdas = [mu * eta for eta in rates] if lambdas is None else lambdas
    _check_rates(rates, local_rates)
    check_numbers("raga", least=0, distance=distance)
    check_numbers("raga", above=0, mu=mu, lambdas=lambdas)
    if mu > L or len(lambdas) != len(rates):
        raise SettingError(
            f"raga needs mu <= L and one lambda per round, got mu={mu}, L={L}, {len(lambdas)} lambdas for {len(rates)} "
            f"rates."
        )
    largest = max(lambdas)
    if refusal := _need_majority(1 - constants.C_bar) or not_guaranteed({f"lambda^t < 1, got {largest}": largest < 1}):
        return refusal
    a = distance**2
    for eta, local, lam in zip(rates, local_rates, lambdas, strict=True):
        gamma = (1 - 2 * eta * mu + L**2 * eta**2) / (1 - lam)
        a = gamma * a + eta**2 / lam * constants.estimation_error(local)
    return Bound(L / 2 * a)


def _need_majority(C_a: float) -> Bound | None:
    return not_guaranteed({f"C_a > 0.5, got {C_a:.6g}": C_a > 0.5})


def _weighted(values: Sequence[float], alphas: Sequence[float], eps: float) -> tuple[float, float]:
    """Check Lemma 3's arguments; return C_a and the sum of alpha_m times value."""
    check_numbers("raga", least=0, rows=values, alphas=alphas, eps=eps)
    C_a = fsum(alphas)
    if len(values) != len(alphas) or C_a > 1 + 1e-9:
        raise SettingError(
            f"raga needs one share alpha per honest row, together at most 1, got {len(alphas)} with sum {C_a} for "
            f"{len(values)} rows."
        )
    return C_a, fsum(alpha * value for alpha, value in zip(alphas, values, strict=True))


def _check_rates(rates: Sequence[float], local_rates: Sequence[Sequence[float]]) -> None:
    check_numbers("raga", above=0, rates=rates)
    for row in local_rates:
        check_numbers("raga", least=0, local_rates=row)
    if len(local_rates) != len(rates):
        raise SettingError(f"raga needs local rates for each round, got {len(local_rates)} for {len(rates)} rounds.")
