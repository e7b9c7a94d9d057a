"""Runs of which rounds draw attackers together with everybody else."""

import pytest
import torch

from lightning_fl import FederatedModule, Federation
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.mimic import MimicLearned
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.krum import Krum
from lightning_fl.callback.record import Record
from lightning_fl.contract import world
from lightning_fl.partition.iid import Iid
from lightning_fl.samples import ClientBatch
from tests import training


def federation(sampling, participation=0.5, b=3):
    return Federation(8, b, "replacement", participation=participation, sampling=sampling)


def fit(sampling, attack, rule=None, rounds=12, participation=0.5, ckpt_path=None, b=3):
    record, data = Record(None), training.data(federation(sampling, participation, b), Iid())
    trainer = training.trainer([rule or Average(), attack, record], rounds)
    module = training.fit(trainer, data_=data, ckpt_path=ckpt_path)
    return trainer, module, record.metrics.rows


@pytest.mark.parametrize("sampling", ["everybody", "bernoulli"])
def test_a_run_is_what_a_loop_does(sampling):
    """Plain averaging at a rate of 0.1 against -10 times the honest mean, of whoever was drawn."""
    _, module, rows = fit(sampling, Ipm(10.0))
    drawn, data, expected = federation(sampling), training.data(federation(sampling), Iid()), world.model()
    data.setup()
    counts = []
    for index in range(12):
        honest, byzantine = drawn.participants(index)
        counts.append(len(byzantine))
        if not honest:
            continue
        batch = ClientBatch(data.train, [data.clients.indices[i] for i in honest], honest)
        mean = world.slow_gradients(expected, batch)[0].mean(0)
        step = (len(honest) * mean - 10 * len(byzantine) * mean) / len([*honest, *byzantine])
        with torch.no_grad():
            for parameter, part in zip(expected.parameters(), step.split([6, 3]), strict=True):
                parameter -= 0.1 * part.view_as(parameter)
    assert [row["byzantine_drawn"] for row in rows] == counts
    assert len(set(counts)) > 1
    for parameter, other in zip(module.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.data, other.data, rtol=1e-4, atol=1e-5)


def test_a_draw_that_the_rule_or_the_attack_cannot_serve():
    """Krum with f = 2 needs five rows: fewer leave the model as it is.  LIE has no majority: it sends zeros."""
    trainer, module, rows = fit("bernoulli", Lie(), Krum(2), 16, 0.65)
    sizes = [sum(map(len, federation("bernoulli", 0.65).participants(index))) for index in range(16)]
    assert [("loss" in row) for row in rows] == [size >= 5 for size in sizes]
    assert {size >= 5 for size in sizes} == {True, False}
    assert trainer.global_step == len(rows) == 16
    assert module.diverged is None


def test_a_round_of_nobody_leaves_model_and_momentum():
    seen = []

    class Seeing(Average):
        def on_train_batch_end(self, trainer, module, *args):
            state = trainer.optimizers[0].state
            momenta = [value["momentum_buffer"].clone() for value in state.values()]
            seen.append([value.detach().clone() for value in module.model.parameters()] + momenta)

    data = training.data(federation("bernoulli", 0.2, 1), Iid())
    trainer = training.trainer([Seeing(), Ipm()], 16)
    module = FederatedModule(world.model(), optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    training.fit(trainer, module, data)
    honest = [len(federation("bernoulli", 0.2, 1).participants(index)[0]) for index in range(16)]
    assert 0 in honest[1:]
    for index in range(1, 16):
        same = [torch.equal(a, b) for a, b in zip(seen[index], seen[index - 1], strict=False)]
        assert all(same) == (honest[index] == 0)


@pytest.mark.parametrize("sampling", ["everybody", "bernoulli"])
def test_it_resumes_bit_for_bit(tmp_path, sampling):
    _, whole, _ = fit(sampling, MimicLearned())
    fit(sampling, MimicLearned(), rounds=5)[0].save_checkpoint(tmp_path / "half.ckpt")
    _, resumed, _ = fit(sampling, MimicLearned(), ckpt_path=tmp_path / "half.ckpt")
    assert all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def test_where_the_groups_are_drawn_apart_nothing_is_told():
    assert all("byzantine_drawn" not in row for row in fit("groups", Ipm())[2])
