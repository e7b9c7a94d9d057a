"""The guarantees of FRPG (Theorem 1) and LFRPG (Theorem 2), for strongly convex losses.

Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.

Both bound E F(w) - F(u*), where u* = (u_0*, .., u_N*) minimises the loss of the server and the N honest of Q clients,

    F(w) = f_0(w_0) + sum_{n=1}^N (f_n(w_n) + lambda p(w_0 - w_n)),                                             (5)

so they say how well the honest clients and the server agree on F, not how near w_0 is to the minimiser of sum f_n.
They hold for any number B = Q - N of Byzantine clients whose penalty gradients are at most lambda sqrt(G) long, and for
the step sizes (16), (17) alone: `step_sizes` of `lightning_fl.server.frpg` and `lightning_fl.client.frpg`.
"""
# ruff: noqa: N803, N806 (the paper's letters)

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from lightning_fl.client import frpg as client
from lightning_fl.errors import SettingError
from lightning_fl.server import frpg as server
from lightning_fl.theory.base import Bound, check_numbers, not_guaranteed


@dataclass(frozen=True)
class Problem:
    """The constants of assumptions A1 to A5; the server's come first.

    Args:
        Q: Clients, Byzantine ones included.
        lam: lambda, weight of the penalty, > 0.
        L: Smoothness L_0, L_1 .. L_N of f_0 and of the honest clients' losses, > 0.
        delta: Their strong convexity delta_0 .. delta_N, 0 <= delta_n <= L_n.
        sigma: sigma_1 .. sigma_N: E||grad f(w; x_n) - grad f_n(w)||^2 <= sigma_n^2 for the mini-batches used.
        G: Bound of the penalty's squared gradient norm; 1 for the Huber penalty of the norm.

    Raises:
        SettingError: If one is out of range.
    """

    Q: int
    lam: float
    L: Sequence[float]
    delta: Sequence[float]
    sigma: Sequence[float]
    G: float = 1.0

    def __post_init__(self) -> None:
        check_numbers("frpg", above=0, lam=self.lam, L=self.L, G=self.G)
        check_numbers("frpg", least=0, delta=self.delta, sigma=self.sigma)
        if not len(self.L) == len(self.delta) == self.N + 1 <= self.Q + 1:
            raise SettingError(
                f"frpg needs one sigma for each of N <= Q honest clients, and L and delta for the server besides, got "
                f"{self.N}, {len(self.L)} and {len(self.delta)} with Q={self.Q}."
            )
        if any(delta > L for delta, L in zip(self.delta, self.L, strict=True)):
            raise SettingError(f"frpg needs delta_n <= L_n, got delta={self.delta} and L={self.L}.")

    @property
    def N(self) -> int:  # noqa: N802
        """How many clients are honest."""
        return len(self.sigma)

    @property
    def B(self) -> int:  # noqa: N802
        """How many are Byzantine."""
        return self.Q - self.N

    @property
    def sigma_0_squared(self) -> float:
        """lambda^2 (Q + B)^2 G (14)."""
        return self.lam**2 * (self.Q + self.B) ** 2 * self.G

    def first_step_sizes(self) -> list[float]:
        """Compute alpha_{0,1} .. alpha_{N,1}."""
        sizes = [server.step_sizes, *[client.step_sizes] * self.N]
        return [size(1, delta, L)[0] for size, delta, L in zip(sizes, self.delta, self.L, strict=True)]

    def neighbourhood(self, K: int) -> float:
        """Compute the term that no number of rounds removes, K (K + 5) / (K + 2)^2 lambda^2 B^2 G / delta_0."""
        return K * (K + 5) / (K + 2) ** 2 * self.lam**2 * self.B**2 * self.G / self.delta[0]


def frpg_bound(K: int, gap: float, distances: Sequence[float], problem: Problem) -> Bound:
    """Bound E F(w_K) - F(u*) after K rounds of FRPG (Theorem 1, equation 18).

    Args:
        K: Rounds, >= 1.
        gap: F(w_0) - F(u*), >= 0.
        distances: ||u_n* - v_{n,0}||, the server's first, then the N honest clients'.
        problem: See `Problem`.

    Returns:
        4 (gap + sum eta_{9,n} + K sum eta_{10,n}) / (K + 2)^2 + K (K + 5) / (K + 2)^2 lambda^2 B^2 G / delta_0; not
        guaranteed unless every delta_n > 0.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        The paper writes the last term as O(lambda^2 B^2 G / delta_0).  Its factor is beta_K^2 sum_{k<=K} 1 / beta_k,
        from Lemma 3 with epsilon = delta_0 / 2.  The left side is printed for w_k and without expectation.

    >>> problem = Problem(Q=2, lam=1.0, L=[1.0, 1.0], delta=[1.0, 1.0], sigma=[0.0])
    >>> print(frpg_bound(2, 4.0, [0.0, 0.0], problem))
    27.6875
    """
    if refusal := _check(problem, distances, gap=gap, rounds=K):
        return refusal
    alpha, delta, lam, Q, G = problem.first_step_sizes(), problem.delta, problem.lam, problem.Q, problem.G
    eta_9 = 3 / 8 * delta[0] * distances[0] ** 2  # (80)
    eta_9 += fsum(a / 2 * distance**2 for a, distance in zip(alpha, distances, strict=True))
    eta_10 = (7 * lam**2 * Q**2 * G + 21 / 8 * problem.sigma_0_squared) / delta[0]  # (81)
    eta_10 += fsum(7 * sigma**2 / (12 * d) for sigma, d in zip(problem.sigma, delta[1:], strict=True))
    return Bound(4 * (gap + eta_9 + K * eta_10) / (K + 2) ** 2 + problem.neighbourhood(K))


def lfrpg_bound(frames: int, slots: int, gap: float, distances: Sequence[float], problem: Problem) -> Bound:
    """Bound E F(wbar^I) - F(u*) after I frames of LFRPG, wbar the mean over the last T slots (Theorem 2, equation 29).

    Args:
        frames: I, >= 1.
        slots: T, local slots per frame, >= 1.
        gap: F(w_k^0) - F(u*), averaged over the slots k that the first models are for, >= 0.
        distances: ||u_n* - v_n^0||, the server's first, then the N honest clients'.
        problem: See `Problem`.

    Returns:
        (2 eta_16 / T + eta_17 + I eta_18) / (I + 2)^2 + I (I + 5) / (I + 2)^2 lambda^2 B^2 G / delta_0, a bound of the
        mean of F over the slots, too; not guaranteed unless every delta_n > 0.

    Raises:
        SettingError: If an argument is out of range.

    Note:
        T divides the clients' first distances alone, not the noise.  eta_18's 11 is 4 * 21 / 8 = 10.5 rounded up by the
        paper, so one slot gives slightly more than `frpg_bound`.

    >>> problem = Problem(Q=2, lam=1.0, L=[1.0, 1.0], delta=[1.0, 1.0], sigma=[0.0])
    >>> print(lfrpg_bound(2, 1, 4.0, [0.0, 0.0], problem))
    28.25
    """
    if refusal := _check(problem, distances, gap=gap, rounds=frames, slots=slots):
        return refusal
    alpha, delta, lam, Q, G = problem.first_step_sizes(), problem.delta, problem.lam, problem.Q, problem.G
    eta_16 = fsum(a * distance**2 for a, distance in zip(alpha[1:], distances[1:], strict=True))  # (87)
    eta_17 = (3 / 2 * delta[0] + 2 * alpha[0]) * distances[0] ** 2 + 4 * gap  # (88)
    eta_18 = fsum(7 * sigma**2 / (3 * d) for sigma, d in zip(problem.sigma, delta[1:], strict=True))  # (89)
    eta_18 += (11 * problem.sigma_0_squared + 28 * lam**2 * Q**2 * G) / delta[0]
    return Bound((2 * eta_16 / slots + eta_17 + frames * eta_18) / (frames + 2) ** 2 + problem.neighbourhood(frames))


def _check(problem: Problem, distances: Sequence[float], gap: float, rounds: int, slots: int = 1) -> Bound | None:
    check_numbers("frpg", least=1, rounds=rounds, slots=slots)
    check_numbers("frpg", least=0, gap=gap, distances=distances)
    if len(distances) != problem.N + 1:
        raise SettingError(
            f"frpg needs the server's distance and one for each of {problem.N} honest clients, got {len(distances)}."
        )
    least = min(problem.delta)
    return not_guaranteed({f"delta_n > 0 for every n, got {least:g}": least > 0})
