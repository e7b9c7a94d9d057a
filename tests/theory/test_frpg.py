# ruff: noqa: N806 (the paper's letters)
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import Tensor

from lightning_fl.client import frpg as client_frpg
from lightning_fl.errors import SettingError
from lightning_fl.server import frpg as server_frpg
from lightning_fl.theory.frpg import Problem, frpg_bound, lfrpg_bound
from tests.theory.problems import Quadratics, normal

MU = 0.05  # of the Huber penalty


def penalty(x: Tensor) -> Tensor:
    """p of each row (30)."""
    length = x.norm(dim=-1)
    return torch.where(length <= MU, length.square() / (2 * MU), length - MU / 2)


def penalty_gradient(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp(min=MU)


@dataclass
class Game:
    """N honest clients with quadratic losses f_n, b others, and f_0(w) = delta_0 / 2 ||w||^2."""

    losses: Quadratics
    b: int
    lam: float
    delta_0: float
    sigma: float

    @property
    def problem(self) -> Problem:
        values = torch.linalg.eigvalsh(self.losses.A)
        N = len(values)
        L, delta = values[:, -1].tolist(), values[:, 0].tolist()
        return Problem(N + self.b, self.lam, [self.delta_0, *L], [self.delta_0, *delta], [self.sigma] * N)

    def loss(self, w: Tensor) -> float:
        """F of (5); the first row of w is the server's."""
        local = (self.losses.gradients(w[1:]) * (w[1:] - self.losses.a)).sum(1) / 2
        return ((local + self.lam * penalty(w[0] - w[1:])).sum() + self.delta_0 / 2 * w[0].square().sum()).item()

    def solve(self) -> Tensor:
        """u*, by gradient descent with momentum to rounding."""
        N, d = self.losses.a.shape
        w = previous = torch.zeros(N + 1, d, dtype=torch.float64)
        L = self.losses.curvatures[1] + self.delta_0 + self.lam * (N + 1) / MU
        root = (min(self.delta_0, self.losses.curvatures[0]) / L) ** 0.5
        gradient = torch.full_like(w, torch.inf)
        while gradient.norm() > 1e-10:
            ahead = w + (1 - root) / (1 + root) * (w - previous)
            pull = self.lam * penalty_gradient(ahead[0] - ahead[1:])
            gradient = torch.cat([self.delta_0 * ahead[:1] + pull.sum(0), self.losses.gradients(ahead[1:]) - pull])
            previous, w = w, ahead - gradient / L
        return w


def run(game: Game, rounds: int, slots: int, start: Tensor, forge, draw: torch.Generator) -> Iterator[Tensor]:
    """Run LFRPG (19)-(21) as written; T = 1 is FRPG.  Yield each frame's models, (T, 1 + N, d)."""
    N, d = game.losses.a.shape
    problem = game.problem
    w_0 = v_0 = start
    w = [start.expand(N, d)] * slots
    v = start.expand(N, d)
    for k in range(1, rounds + 1):
        beta = 2 / (k + 2)
        alpha_0 = game.delta_0 / 14 * (k + 2) ** 2 + 1.5 * game.delta_0
        delta = torch.tensor(problem.delta[1:], dtype=torch.float64)[:, None]
        alpha = 3 * delta / 14 * (k + 2) ** 2 + torch.tensor(problem.L[1:], dtype=torch.float64)[:, None]
        u_0 = (1 - beta) * w_0 + beta * v_0
        w_0 = u_0 - game.delta_0 * u_0 / alpha_0
        received = torch.zeros(N + game.b, d, dtype=torch.float64)
        for slot in range(slots):
            u = (1 - beta) * w[slot] + beta * v
            noise = normal(draw, N, d)
            q = game.losses.gradients(u) + game.sigma * noise / noise.norm(dim=1, keepdim=True)
            z = w_0 - u + q / alpha
            tau = game.lam / alpha
            x = z * (1 - tau / torch.maximum(z.norm(dim=1, keepdim=True), MU + tau))  # prox
            w[slot] = w_0 - x
            g = game.lam * penalty_gradient(x)
            v = v - (delta * (v - u) + q - g) / (delta + alpha * beta)
            models = forge(w_0, w[slot], game.b, draw)
            received += torch.cat([g, game.lam * penalty_gradient(w_0 - models)]) / slots
        step = game.delta_0 * (v_0 - u_0) + game.delta_0 * u_0 + received.sum(0)
        v_0 = v_0 - step / (game.delta_0 + alpha_0 * beta)
        yield torch.stack([torch.cat([w_0[None], models]) for models in w])


ATTACKS = {
    "none": lambda w_0, honest, b, draw: honest.mean(0).expand(b, -1),
    "noise": lambda w_0, honest, b, draw: 1e4 * normal(draw, b, len(w_0)),
    "one way": lambda w_0, honest, b, draw: (w_0 + 1e9).expand(b, -1),
    "outwards": lambda w_0, honest, b, draw: (2 * w_0 - honest.mean(0)).expand(b, -1),
    "near": lambda w_0, honest, b, draw: w_0 + MU * normal(draw, b, len(w_0)),
}


@cache
def game(seed: int, b: int, lam: float, sigma: float, far: float = 1.0) -> tuple[Game, Tensor, Tensor]:
    """A game, a start and u*."""
    draw = torch.Generator().manual_seed(seed)
    losses = Quadratics.draw(5, 3, draw, mu=0.5, L=2.0, spread=1.0, bend=0.5)
    made = Game(losses, b, lam, 0.5, sigma)
    return made, far * normal(draw, 3), made.solve()


def gaps_and_bounds(made, rounds: int, slots: int, attack: str, seeds: int) -> list[tuple[float, float]]:
    """Check the mean gap after each round against the bound; return both."""
    game, start, best = made
    least, first = game.loss(best), start.expand_as(best)
    draws = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    records = zip(*(run(game, rounds, slots, start, ATTACKS[attack], draw) for draw in draws), strict=True)
    at_start = game.loss(first) - least, (first - best).norm(dim=1).tolist(), game.problem
    found = []
    for k, models in enumerate(records, start=1):
        gap = sum(game.loss(w) for of_seed in models for w in of_seed) / (seeds * slots) - least
        mean = sum(game.loss(of_seed.mean(0)) for of_seed in models) / seeds - least
        bound = frpg_bound(k, *at_start) if slots == 1 else lfrpg_bound(k, slots, *at_start)
        assert bound.reason is None
        assert -1e-9 < mean <= gap + 1e-12
        assert gap <= bound.value
        found.append((gap, bound.value))
    return found


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("seed", "b", "lam"), [(0, 1, 0.5), (1, 4, 0.2), (2, 6, 0.02)])
def test_the_bound_holds_for_any_number_of_byzantine_clients(seed, b, lam, slots, attack):
    found = gaps_and_bounds(game(seed, b, lam, 0.3), 30, slots, attack, seeds=3)
    assert len(found) == 30


def test_without_byzantine_clients_the_gap_falls_like_one_over_k_and_else_it_stays():
    alone = gaps_and_bounds(game(3, 0, 0.5, 0.5), 200, 1, "none", seeds=3)
    assert alone[199][0] < alone[19][0] / 4
    assert 6 < alone[19][1] / alone[199][1] < 10
    attacked = gaps_and_bounds(game(3, 4, 0.5, 0.5), 200, 1, "one way", seeds=3)
    assert attacked[199][0] > 0.5 * attacked[19][0] > 10 * alone[199][0]


def test_a_small_penalty_brings_the_bounds_near():
    # Without noise and Byzantine clients the first distances are nearly all there is.
    made = game(4, 0, 1e-4, 0.0, far=30.0)
    assert all(bound < 6 * gap for gap, bound in gaps_and_bounds(made, 8, 1, "none", seeds=1))
    # T takes the clients' distances out of the bound, not the server's.
    one, many = (gaps_and_bounds(made, 4, slots, "none", seeds=1)[-1][1] for slots in (2, 50))
    assert many < 0.7 * one


PROBLEM = Problem(Q=5, lam=0.5, L=[1.0, 2.0, 4.0, 3.0], delta=[0.5, 1.0, 0.25, 2.0], sigma=[1.0, 0.5, 0.25], G=2.0)
DISTANCES = [1.0, 2.0, 0.5, 1.5]


def by_hand():
    """eta_9 and eta_10 of (80), (81), from step sizes worked by hand at k = 1."""
    Q, B, G, lam = 5, 2, 2, Fraction(1, 2)
    alphas = [Fraction(9, 28) + Fraction(3, 2), Fraction(27, 14) + 2, Fraction(27, 56) + 4, Fraction(27, 7) + 3]
    squares = [1, 4, Fraction(1, 4), Fraction(9, 4)]
    sigma_0 = lam**2 * (Q + B) ** 2 * G
    eta_9 = (Fraction(3, 16) + alphas[0] / 2) * squares[0]
    eta_9 += sum(alpha / 2 * square for alpha, square in zip(alphas[1:], squares[1:], strict=True))
    eta_10 = (7 * lam**2 * Q**2 * G + Fraction(21, 8) * sigma_0) / Fraction(1, 2)
    eta_10 += Fraction(7, 12) + Fraction(7, 12) / 4 / Fraction(1, 4) + Fraction(7, 12) / 16 / 2
    return alphas, squares, sigma_0, eta_9, eta_10


def test_theorem_1_in_fractions():
    _, _, sigma_0, eta_9, eta_10 = by_hand()
    assert sigma_0 == Fraction(49, 2)
    for K in (1, 2, 9):
        # beta_K^2 sum_k beta_k / beta_k^2 lambda^2 B^2 G / (2 epsilon), epsilon = delta_0 / 2 (Lemma 3)
        stays = Fraction(2, K + 2) ** 2 * sum(Fraction(k + 2, 2) for k in range(1, K + 1)) * Fraction(4 * 2, 4) * 2
        expected = 4 * (3 + eta_9 + K * eta_10) / Fraction(K + 2) ** 2 + stays
        assert frpg_bound(K, 3.0, DISTANCES, PROBLEM).value == pytest.approx(float(expected))


def test_theorem_2_in_fractions():
    alphas, squares, sigma_0, _, _ = by_hand()
    eta_16 = sum(alpha * square for alpha, square in zip(alphas[1:], squares[1:], strict=True))
    eta_17 = Fraction(3, 4) + 2 * alphas[0] + 4 * 3
    eta_18 = Fraction(7, 3) + Fraction(7, 3) + Fraction(7, 96) + 2 * (11 * sigma_0 + 28 * Fraction(25, 2))
    for frames, slots in ((1, 1), (7, 4)):
        stays = Fraction(frames * (frames + 5), (frames + 2) ** 2) * 4
        expected = (2 * eta_16 / slots + eta_17 + frames * eta_18) / Fraction(frames + 2) ** 2 + stays
        assert lfrpg_bound(frames, slots, 3.0, DISTANCES, PROBLEM).value == pytest.approx(float(expected))


def test_one_slot_gives_theorem_1_but_for_eleven_in_place_of_ten_and_a_half():
    K, sigma_0 = 6, 24.5
    excess = K * 0.5 * sigma_0 / 0.5 / (K + 2) ** 2
    frpg = frpg_bound(K, 3.0, DISTANCES, PROBLEM).value
    assert lfrpg_bound(K, 1, 3.0, DISTANCES, PROBLEM).value == pytest.approx(frpg + excess)


def test_the_experiments_constants_make_the_bounds_vacuous():
    # Q = 20, B = 4, lambda = 1.6, delta = 0.003, L = 295: the neighbourhood is 13,653 and eta_10 3.68e6.
    problem = Problem(Q=20, lam=1.6, L=[295.0] * 17, delta=[0.003] * 17, sigma=[0.0] * 16)
    K = 10**9
    assert frpg_bound(K, 0.0, [0.0] * 17, problem).value == pytest.approx(13_653, rel=1e-3)
    eta_10 = (frpg_bound(1, 0.0, [0.0] * 17, problem).value - 6 / 9 * 13653.33) * 9 / 4
    assert eta_10 == pytest.approx(3.68e6, rel=1e-3)


def test_step_sizes_meet_the_proof_s_conditions():
    # (78), epsilon = delta_0 / 2; c_0 and c_n are as large as round 1 allows.
    def slack(k, delta, server):
        sizes = server_frpg.step_sizes if server else client_frpg.step_sizes
        rise = sizes(k + 1, delta, 3.0)[0] - sizes(k, delta, 3.0)[0]
        return delta * (k + 2) / 2 - server * delta / 2 * (k + 3) / 2 - rise

    for server in (True, False):
        assert slack(1, 0.7, server) == pytest.approx(0)
        assert min(slack(k, 0.7, server) for k in range(2, 50)) > 0


@pytest.mark.parametrize("name", ["gap", "distances", "lam", "sigma", "L", "G"])
@pytest.mark.parametrize("slots", [None, 1, 5])
def test_both_theorems_grow_with(name, slots):
    values = []
    for factor in (1, 1.1, 1.5):
        settings = {"gap": 2.0, "distances": DISTANCES, "problem": PROBLEM}
        holder = settings if name in settings else vars(PROBLEM)
        scaled = [factor * x for x in holder[name]] if isinstance(holder[name], list) else factor * holder[name]
        settings |= {name: scaled} if name in settings else {"problem": replace(PROBLEM, **{name: scaled})}
        values.append((frpg_bound(5, **settings) if slots is None else lfrpg_bound(5, slots, **settings)).value)
    assert values == sorted(set(values))


def test_byzantine_clients_cost_and_slots_help():
    for Q in (3, 4, 9):
        less, more = (frpg_bound(9, 1.0, DISTANCES, replace(PROBLEM, Q=q)).value for q in (Q, Q + 1))
        assert less < more
    values = [lfrpg_bound(9, slots, 1.0, DISTANCES, PROBLEM).value for slots in (10, 3, 1)]
    assert values == sorted(values)


def test_what_is_only_convex_is_not_guaranteed():
    for n in (0, 2):
        delta = [*PROBLEM.delta[:n], 0.0, *PROBLEM.delta[n + 1 :]]
        problem = replace(PROBLEM, delta=delta)
        reason = "not guaranteed: needs delta_n > 0 for every n, got 0"
        assert frpg_bound(5, 1.0, DISTANCES, problem).reason == reason
        assert lfrpg_bound(5, 2, 1.0, DISTANCES, problem).reason == reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: replace(PROBLEM, lam=0.0), "finite lam > 0"),
        (lambda: replace(PROBLEM, sigma=[1.0, -1.0, 0.0]), "finite sigma >= 0"),
        (lambda: replace(PROBLEM, Q=2), "N <= Q honest clients"),
        (lambda: replace(PROBLEM, L=[5.0] * 3), "got 3, 3 and 4 with Q=5"),
        (lambda: replace(PROBLEM, delta=[1.0, 1.0, 1.0, 4.0]), "delta_n <= L_n"),
        (lambda: frpg_bound(0, 1.0, DISTANCES, PROBLEM), "finite rounds >= 1"),
        (lambda: lfrpg_bound(1, 0, 1.0, DISTANCES, PROBLEM), "finite slots >= 1"),
        (lambda: frpg_bound(1, -1.0, DISTANCES, PROBLEM), "finite gap >= 0"),
        (lambda: frpg_bound(1, 1.0, [-1.0, *DISTANCES[1:]], PROBLEM), "finite distances >= 0"),
        (lambda: frpg_bound(1, 1.0, DISTANCES[1:], PROBLEM), "one for each of 3 honest clients, got 3"),
    ],
)
def test_nonsense_is_an_error(call, message):
    with pytest.raises(SettingError, match=f"frpg needs .*{message}"):
        call()
