"""FRPG and LFRPG against Algorithms 1 and 2, one client and one line after the other, in float64."""

from functools import partial
from math import inf

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.adversary.label_flip import LabelFlip
from lightning_fl.client.frpg import Frpg, step_sizes
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import conf, world
from lightning_fl.round import Round
from lightning_fl.server.frpg import Frpg as Server
from tests.client import personal

LAMBDA, MU, DELTA, LIPSCHITZ = 0.3, 0.2, 0.2, 6.0
BYZANTINE = 4


def client(slots=1, batch_size=None, chunk=None):
    return Frpg(LAMBDA, MU, DELTA, LIPSCHITZ, slots, batch_size, chunk)


def server():
    return partial(Server, delta=DELTA, lipschitz=LIPSCHITZ)


def fit(slots=1, batch_size=None, chunk=None, adversary=None, rounds=6):
    return personal.fit(client(slots, batch_size, chunk), server(), LAMBDA, "l2", adversary, rounds)


def huber_gradient(x):
    return x / MU if x.norm() <= MU else x / x.norm()


def prox(z, tau, mu=MU):
    return z * mu / (mu + tau) if z.norm() <= mu + tau else z * (1 - tau / z.norm())


def slow_frpg(rounds, batch_size, flipped=()):
    """Algorithm 1.  Gives w_0 as round `rounds` + 1 broadcasts it, all w_n and v_n, and every upload's length."""
    alpha_1 = DELTA / 14 * 9 + 1.5 * LIPSCHITZ
    server_w = server_v = personal.start() / (1 - DELTA / alpha_1)
    w, v = [personal.start()] * 5, [personal.start()] * 5
    lengths = []
    for k in range(1, rounds + 2):
        beta = 2 / (k + 2)
        alpha_0, alpha = DELTA / 14 * (k + 2) ** 2 + 1.5 * LIPSCHITZ, 3 * DELTA / 14 * (k + 2) ** 2 + LIPSCHITZ
        server_u = (1 - beta) * server_w + beta * server_v
        server_w = server_u - DELTA * server_u / alpha_0
        if k > rounds:
            return server_w, w, v, lengths
        ((*pairs,),) = personal.samples(k, batch_size, flipped=flipped)
        total = torch.zeros(9, dtype=torch.float64)
        for n, (x, y) in enumerate(pairs):
            u = (1 - beta) * w[n] + beta * v[n]
            q = personal.gradient(u, x, y) + DELTA * u
            w[n] = server_w - prox(server_w - u + q / alpha, LAMBDA / alpha)
            g = LAMBDA * huber_gradient(server_w - w[n])
            v[n] = v[n] - (DELTA * (v[n] - u) + q - g) / (DELTA + alpha * beta)
            total += g
            lengths.append(g.norm().item())
        step = DELTA * (server_v - server_u) + DELTA * server_u + total
        server_v = server_v - step / (DELTA + alpha_0 * beta)


def slow_lfrpg(rounds, slots, batch_size, flipped=()):
    """Algorithm 2; the same results, with a list of T models a client."""
    alpha_1 = DELTA / 14 * 9 + 1.5 * LIPSCHITZ
    server_w = server_v = personal.start() / (1 - DELTA / alpha_1)
    w, v = [[personal.start()] * slots for _ in range(5)], [personal.start()] * 5
    lengths = []
    for i in range(1, rounds + 2):
        beta = 2 / (i + 2)
        alpha_0, alpha = DELTA / 14 * (i + 2) ** 2 + 1.5 * LIPSCHITZ, 3 * DELTA / 14 * (i + 2) ** 2 + LIPSCHITZ
        server_u = (1 - beta) * server_w + beta * server_v
        server_w = server_u - DELTA * server_u / alpha_0
        if i > rounds:
            return server_w, w, v, lengths
        drawn = personal.samples(i, batch_size, slots, flipped)
        total = torch.zeros(9, dtype=torch.float64)
        for n in range(5):
            uploads = []
            for slot in range(slots):
                u = (1 - beta) * w[n][slot] + beta * v[n]
                q = personal.gradient(u, *drawn[slot][n]) + DELTA * u
                w[n][slot] = server_w - prox(server_w - u + q / alpha, LAMBDA / alpha)
                g = LAMBDA * huber_gradient(server_w - w[n][slot])
                v[n] = v[n] - (DELTA * (v[n] - u) + q - g) / (DELTA + alpha * beta)
                uploads.append(g)
            total += sum(uploads[1:], uploads[0]) / slots
            lengths += [g.norm().item() for g in uploads]
        step = DELTA * (server_v - server_u) + DELTA * server_u + total
        server_v = server_v - step / (DELTA + alpha_0 * beta)


@pytest.mark.parametrize(
    ("flip", "chunk", "batch_size"), [(False, 1, None), (False, 3, 2), (True, 1, 2), (True, 3, None)]
)
def test_frpg_is_algorithm_1(flip, chunk, batch_size):
    _, module = fit(1, batch_size, chunk, LabelFlip() if flip else None, rounds=12)
    expected, w, v, lengths = slow_frpg(12, batch_size, [BYZANTINE] if flip else ())
    torch.testing.assert_close(personal.parameters(module), expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(module.client.w[:, 0], torch.stack(w), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(module.client.v, torch.stack(v), rtol=1e-11, atol=1e-12)
    assert max(lengths) == pytest.approx(LAMBDA)  # both branches of the penalty were met
    assert min(lengths) < 0.9 * LAMBDA


@pytest.mark.parametrize(
    ("slots", "flip", "batch_size"), [(1, True, None), (2, True, 2), (5, False, 2), (3, False, None)]
)
def test_lfrpg_is_algorithm_2(slots, flip, batch_size):
    _, module = fit(slots, batch_size, adversary=LabelFlip() if flip else None)
    expected, w, v, lengths = slow_lfrpg(6, slots, batch_size, [BYZANTINE] if flip else ())
    torch.testing.assert_close(personal.parameters(module), expected, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(module.client.w, torch.stack([torch.stack(own) for own in w]), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(module.client.v, torch.stack(v), rtol=1e-11, atol=1e-12)
    assert min(lengths) < 0.9 * LAMBDA


def test_one_slot_is_frpg_bit_for_bit():
    """Algorithm 2 with T = 1 in the loops, and the client with T = 1 against (7) and (8) without any slot."""
    first, second = slow_frpg(6, 2), slow_lfrpg(6, 1, 2)
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(a, b[0]) for a, b in zip(first[1], second[1], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first[2], second[2], strict=True))

    module, model, frame = personal.data(), world.model().double(), client()
    module.setup()
    frame.prepare(model, module.clients)
    w, v, w_0 = frame.w[:, 0].clone(), frame.v.clone(), personal.start()
    for k in range(1, 5):
        uploads = frame.updates(model, module.clients, Round(k - 1, 0.0, 0)).updates
        alpha, beta = step_sizes(k, DELTA, LIPSCHITZ)
        u = (1 - beta) * w + beta * v
        q = Gradient().gradients(model, module.clients, at=u).updates + DELTA * u
        z = w_0 - u + q / alpha
        g = LAMBDA * (z / z.norm(dim=1, keepdim=True).clamp(min=MU + LAMBDA / alpha))
        w, v = w_0 - (z - g / alpha), v - (DELTA * (v - u) + q - g) / (DELTA + alpha * beta)
        assert torch.equal(uploads, g)
        assert torch.equal(frame.w[:, 0], w)
        assert torch.equal(frame.v, v)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("tau", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize("length", [0.0, 1e-4, 0.09, 1.0, 30.0])
def test_prox_minimises(length, tau, mu, draw):
    """What the loops above rest on; numerically, on the objective as (30) writes the penalty."""
    z = torch.randn(4, generator=draw, dtype=torch.float64)
    z *= length / z.norm()

    def objective(x):
        size = x.norm()
        return tau * torch.where(size <= mu, x.square().sum() / (2 * mu), size - mu / 2) + (x - z).square().sum() / 2

    found = prox(z, tau, mu)
    # By symmetry the minimiser lies between 0 and z; golden sections of a convex function find how far.
    low, high, ratio = 0.0, 1.0, (5**0.5 - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if objective(left * z) < objective(right * z) else (left, high)
    torch.testing.assert_close(found, (low + high) / 2 * z, rtol=1e-5, atol=1e-6 * max(length, 1))
    nearby = found + 1e-3 * torch.randn(200, 4, generator=draw, dtype=torch.float64)
    assert all(objective(x) > objective(found) for x in nearby)


@pytest.mark.parametrize("k", [1, 7])
def test_identities_of_a_step(k, draw):
    """(8b) minimises <q, w - u> + alpha/2 ||w - u||^2 + lambda p(w_0 - w), so alpha (u - w) = q - g; (8c) likewise."""
    module, model, one = personal.data(), world.model().double(), client()
    module.setup()
    one.prepare(model, module.clients)
    one.w += 0.5 * torch.randn(one.w.shape, generator=draw, dtype=torch.float64)
    one.v += 0.5 * torch.randn(one.v.shape, generator=draw, dtype=torch.float64)
    before_w, before_v, w_0 = one.w[:, 0].clone(), one.v.clone(), personal.start()
    g = one.updates(model, module.clients, Round(k - 1, 0.0, 0)).updates
    alpha, beta = 3 * DELTA / 14 * (k + 2) ** 2 + LIPSCHITZ, 2 / (k + 2)
    assert (g.norm(dim=1) <= LAMBDA * (1 + 1e-12)).all()
    for n, indices in enumerate(module.clients.indices):
        u = (1 - beta) * before_w[n] + beta * before_v[n]
        q = personal.gradient(u, *module.train.gather(indices)) + DELTA * u
        torch.testing.assert_close(alpha * (u - one.w[n, 0]), q - g[n])
        torch.testing.assert_close(g[n], LAMBDA * huber_gradient(w_0 - one.w[n, 0]))

        def first(w, u=u, q=q):
            x = (w_0 - w).norm()
            p = torch.where(x <= MU, x**2 / (2 * MU), x - MU / 2)
            return q @ (w - u) + alpha / 2 * (w - u).square().sum() + LAMBDA * p

        def second(w, u=u, q=q, n=n):
            near, old = (w - u).square().sum(), (w - before_v[n]).square().sum()
            return (q - g[n]) @ (w - u) + DELTA / 2 * near + alpha * beta / 2 * old

        for objective, found in [(first, one.w[n, 0]), (second, one.v[n])]:
            nearby = found + 1e-3 * torch.randn(50, 9, generator=draw, dtype=torch.float64)
            assert all(objective(w) > objective(found) for w in nearby)


@pytest.mark.parametrize(("slots", "number"), [(1, 1e9), (1, torch.nan), (3, -1e30), (3, torch.inf)])
def test_a_forged_upload_moves_the_server_by_at_most_lambda(slots, number):
    """One round: lambda in (6c), then beta_2 (1 - delta/alpha_2) of it in (6a) and (6b)."""
    (_, attacked), (_, silent) = (fit(slots, adversary=personal.Forge(value), rounds=1) for value in (number, 0.0))
    alpha_1, alpha_2 = (DELTA / 14 * (k + 2) ** 2 + 1.5 * LIPSCHITZ for k in (1, 2))
    bound = LAMBDA / (DELTA + alpha_1 * 2 / 3) * 0.5 * (1 - DELTA / alpha_2)
    moved = (personal.parameters(attacked) - personal.parameters(silent)).norm().item()
    assert moved == pytest.approx(bound if abs(number) < torch.inf else 0.0)
    assert personal.parameters(fit(slots, adversary=personal.Forge(number), rounds=4)[1]).isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0.0, MU, DELTA, LIPSCHITZ, 1), "frpg needs penalty > 0, got 0.0; the default is 1.6"),
        ((LAMBDA, 0.0, DELTA, LIPSCHITZ, 1), "frpg needs mu > 0, got 0.0"),
        ((LAMBDA, MU, -1.0, LIPSCHITZ, 1), "frpg needs delta >= 0, got -1.0"),
        ((LAMBDA, MU, DELTA, inf, 1), "frpg needs a finite lipschitz > 0, got inf"),
        ((LAMBDA, MU, DELTA, LIPSCHITZ, 0), "frpg needs slots >= 1, got 0"),
        ((LAMBDA, MU, DELTA, LIPSCHITZ, 1, 0), "frpg needs batch_size >= 1, got 0"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=message):
        Frpg(*settings)


@pytest.mark.parametrize("attack", ["label_flip", "gaussian"])
@pytest.mark.parametrize(("method", "slots"), [("frpg", 1), ("lfrpg", 10)])
def test_the_papers_experiment(method, slots, attack):
    config = conf.compose(f"experiment={method}_mnist_{attack}")
    made = conf.make("client", "frpg", **config.client)
    assert (made.penalty, made.mu, made.delta, made.lipschitz, made.slots) == (1.6, 1e-3, 0.003, 295, slots)
    assert made.batch_size == {"label_flip": 15, "gaussian": 10}[attack]
    assert config.aggregator.radius == made.penalty
    assert (config.server.delta, config.server.lipschitz) == (0.003, 295)
    assert (config.federation.n_clients, config.federation.n_byzantine) == (20, 4)
    assert config.federation.byzantine == "replacement"
    assert config.adversary._target_.rsplit(".", 1)[1] == {"label_flip": "LabelFlip", "gaussian": "Gaussian"}[attack]
    assert "lr_lambda" not in config.get("schedule", {})
