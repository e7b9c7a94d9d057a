"""RSA against its two equations, one client after the other, in float64."""

from functools import partial

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from lightning_fl import SettingError
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.adversary.label_flip import LabelFlip
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.client.rsa import Rsa, huber_gradient, penalty_gradient
from lightning_fl.contract import conf
from lightning_fl.schedule.power_decay import power_decay
from tests.client import personal

LAMBDA, MU, DELTA, ETA = 0.3, 0.2, 0.1, 0.4
DUAL = {"huber": "l2", "l2": "l2", "l1": "linf", "linf": "l1"}
BYZANTINE = 4


def client(norm="huber", batch_size=None, chunk=None):
    return Rsa(LAMBDA, norm, MU, DELTA, batch_size, chunk)


def fit(norm="huber", batch_size=None, chunk=None, adversary=None, rounds=6, ckpt_path=None):
    return personal.fit(
        client(norm, batch_size, chunk),
        partial(SGD, lr=ETA, weight_decay=DELTA),
        LAMBDA,
        norm,
        adversary,
        rounds,
        ckpt_path,
        lambda optimizer: LambdaLR(optimizer, power_decay(1.0, 1.0, 0.5)),
    )


def s(x, norm):
    """The subgradient of each penalty at one vector."""
    if not x.any():
        return torch.zeros_like(x)
    if norm == "huber" and x.norm() <= MU:
        return x / MU
    if norm == "l1":
        return torch.tensor([(value > 0) - (value < 0) for value in x.tolist()], dtype=x.dtype)
    if norm == "linf":
        i = max(range(len(x)), key=lambda i: abs(x[i]))
        return torch.eye(len(x), dtype=x.dtype)[i] * (1 if x[i] > 0 else -1)
    return x / x.norm()


def slow_rsa(rounds, norm, batch_size, flipped=()):
    """Both equations with eta_k = eta / sqrt(k); gives w_0, all w_n and how far they were from w_0."""
    server, w, distances = personal.start(), [personal.start()] * 5, []
    for k in range(1, rounds + 1):
        eta = ETA / k**0.5
        (pairs,) = personal.samples(k, batch_size, flipped=flipped)
        pull = LAMBDA * sum((s(server - own, norm) for own in w), torch.zeros(9, dtype=torch.float64))
        distances += [(server - own).norm().item() for own in w]
        w = [
            own - eta * (personal.gradient(own, x, y) + DELTA * own + LAMBDA * s(own - server, norm))
            for own, (x, y) in zip(w, pairs, strict=True)
        ]
        server = server - eta * (DELTA * server + pull)
    return server, torch.stack(w), distances


@pytest.mark.parametrize(
    ("norm", "batch_size", "chunk", "flip"),
    [
        ("huber", None, 1, False),
        ("huber", 2, 3, True),
        ("l2", None, 3, True),
        ("l1", 2, 1, False),
        ("linf", 2, 3, True),
    ],
)
def test_rsa_is_its_equations(norm, batch_size, chunk, flip):
    _, module = fit(norm, batch_size, chunk, LabelFlip() if flip else None, rounds=10)
    server, w, distances = slow_rsa(10, norm, batch_size, [BYZANTINE] if flip else ())
    torch.testing.assert_close(personal.parameters(module), server, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(module.client.w, w, rtol=1e-11, atol=1e-12)
    if norm == "huber":
        assert min(distances[5:]) < MU < max(distances)  # both branches were met


@pytest.mark.parametrize("norm", DUAL)
def test_subgradients_row_by_row(norm, draw):
    x = torch.cat([torch.randn(20, 7, generator=draw, dtype=torch.float64), torch.zeros(1, 7)]).double()
    x[3] *= 0.01
    x[4, 2] = 0.0
    expected = torch.stack([s(row, norm) for row in x])
    torch.testing.assert_close(penalty_gradient(x, norm, MU), expected)
    # Nobody's upload is clipped: the dual norm of a subgradient is at most 1.
    torch.testing.assert_close(ClippedSum(LAMBDA, norm)(LAMBDA * expected), LAMBDA * expected.sum(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e15])
def test_gradients_are_finite_and_at_most_one(scale, dtype, draw):
    x = (scale * torch.randn(5, 7, generator=draw)).to(dtype)
    for norm in DUAL:
        gradient = penalty_gradient(x, norm, 1e-3)
        assert gradient.dtype == dtype
        assert gradient.abs().max() <= 1
    lengths = (x.double().norm(dim=1) / 1e-3).clamp(max=1)
    torch.testing.assert_close(huber_gradient(x, 1e-3).double().norm(dim=1), lengths, rtol=1e-6, atol=0)
    torch.testing.assert_close(penalty_gradient(x, "l2", 1e-3).norm(dim=1), torch.ones(5, dtype=dtype))


@pytest.mark.parametrize(
    ("norm", "number"), [("huber", 1e9), ("huber", torch.nan), ("l1", -1e30), ("linf", 1e9), ("linf", torch.inf)]
)
def test_a_forged_upload_moves_the_server_by_at_most_lambda(norm, number):
    """One round: eta lambda, in the norm that bounds this penalty's gradients."""
    (_, attacked), (_, silent) = (fit(norm, adversary=personal.Forge(value), rounds=1) for value in (number, 0.0))
    moved = personal.parameters(attacked) - personal.parameters(silent)
    length = torch.linalg.vector_norm(moved, {"l2": 2, "linf": torch.inf, "l1": 1}[DUAL[norm]]).item()
    assert length == pytest.approx(ETA * LAMBDA if abs(number) < torch.inf else 0.0)


@pytest.mark.parametrize("stop", [1, 4])
def test_resumed_equals_never_stopped_bit_for_bit(tmp_path, stop):
    def run(rounds, ckpt_path=None):
        return fit("huber", 2, adversary=Gaussian(1e4, "models"), rounds=rounds, ckpt_path=ckpt_path)

    _, expected = run(6)
    run(stop)[0].save_checkpoint(tmp_path / "half.ckpt")
    resumed, module = run(6, tmp_path / "half.ckpt")
    assert resumed.global_step == 6
    assert "client.w" in module.state_dict()
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0.0, "l2", MU, DELTA), "rsa needs penalty > 0, got 0.0"),
        ((LAMBDA, "l2", 0.0, DELTA), "rsa needs mu > 0, got 0.0"),
        ((LAMBDA, "l2", MU, -1.0), "rsa needs delta >= 0, got -1.0"),
        ((LAMBDA, "l2", MU, DELTA, 0), "rsa needs batch_size >= 1, got 0"),
        ((LAMBDA, "l3", MU, DELTA), "rsa's norm must be one of huber, l2, l1, linf, got 'l3'"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(SettingError, match=message):
        Rsa(*settings)


@pytest.mark.parametrize("attack", ["label_flip", "gaussian"])
def test_the_papers_comparison(attack):
    config, plain = (conf.compose(f"experiment={method}_mnist_{attack}") for method in ("rsa", "sgd"))
    assert conf.make("client", "rsa", **config.client).norm == "huber"
    assert config.aggregator.radius == config.client.penalty == 1.6
    for each in (config, plain):
        assert (each.server.lr, each.server.weight_decay) == (3.0, 0.003)
        assert each.schedule.lr_lambda.exponent == 0.5
        assert each.client.batch_size == {"label_flip": 15, "gaussian": 10}[attack]
        assert (each.federation.n_clients, each.federation.n_byzantine) == (20, 4)
        assert not each.data.standardize
    assert "Average" in plain.aggregator._target_
    assert {"label_flip": "LabelFlip", "gaussian": "Gaussian"}[attack] in plain.adversary._target_
