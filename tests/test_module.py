import copy
import csv
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_fl import FederatedDataModule, FederatedModule, Federation, SettingError, TensorData, Updates
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.label_flip import LabelFlipPair
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.mimic import MimicLearned
from lightning_fl.adversary.rop import Rop
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Weighting
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.centred_clipping import CentredClipping
from lightning_fl.aggregator.clipped_clustering import ClippedClustering
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.callback.record import Record
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.rsa import Rsa
from lightning_fl.client.top_k import TopK
from lightning_fl.contract import world
from lightning_fl.contract.device import PretendedDevice, Waits
from lightning_fl.errors import ProcessError
from lightning_fl.partition.iid import Iid
from lightning_fl.schedule.late_decay import late_decay
from lightning_fl.strategy.client_parallel import ClientParallel
from tests import training


class Small(FederatedDataModule):
    """Three classes in the plane."""

    def load(self):
        return world.samples(40), world.samples(10, seed=1)


def data(n_clients=8, n_byzantine=2, byzantine="supplement", server_samples=5, weights="uniform"):
    federation = Federation(n_clients, n_byzantine, byzantine, weights)
    return Small(Iid(), federation, server_samples, seed=0, partition_seed=0, eval_batch_size=16)


def module(model=None, reference=None, lr=0.1, momentum=0.9):
    return FederatedModule(
        model or world.model(),
        Gradient(),
        lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=momentum),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, late_decay(3, 2, 0.5)),
        reference,
    )


def trainer(tmp_path, rounds, *callbacks):
    return training.trainer(callbacks, rounds, default_root_dir=tmp_path)


@pytest.fixture(autouse=True)
def _quiet():
    with training.quiet():
        yield


def boba(f=2):
    return Boba(f, p_min=-0.5, max_iter=20, stage_1="alternating", stage_2=True)


def without_time(rows):
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def test_a_round_is_what_the_slow_loop_does(tmp_path):
    """Average under IPM, two rounds by hand: every gradient by autograd, mean, momentum 0, rate 0.1."""
    run, federation = module(momentum=0.0), data()
    trainer(tmp_path, 2, Average(), Ipm(2.0)).fit(run, datamodule=federation)
    model = world.model()
    for _ in range(2):
        gradients = []
        for indices in federation.clients.indices:
            x, y = federation.train.gather(indices)
            loss = nn.functional.cross_entropy(model(x), y)
            gradients.append(torch.autograd.grad(loss, list(model.parameters())))
        honest = [torch.stack(parts).double().mean(0) for parts in zip(*gradients, strict=True)]
        for parameter, mean in zip(model.parameters(), honest, strict=True):
            parameter.data -= (0.1 * (8 * mean + 2 * (-2.0 * mean)) / 10).float()
    for parameter, expected in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


def in_float64(rounds, inputs, targets, parts):
    """Gradients of the clients' means by autograd, averaged, at rate 0.1."""
    model = world.model().double()
    for _ in range(rounds):
        losses = [nn.functional.cross_entropy(model(inputs[part]), targets[part]) for part in parts]
        gradients = torch.autograd.grad(sum(losses) / len(losses), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.1 * gradient
    return model


@pytest.mark.parametrize(("rule", "in_bytes"), [(Average(), True), (TrimmedMean(0), False)])
def test_a_whole_round_in_double_precision(rule, in_bytes):
    """Inputs and parameters that float32 would round."""
    x, y = world.samples().inputs.double() / 3, world.samples().targets
    x = (20 * x + 128).byte() if in_bytes else x
    parts = [torch.arange(0, 18, 2), torch.arange(1, 18, 2)]
    held = TensorData((x, y), (x, y), parts, n_clients=2, server_samples=1)
    run = training.module()
    training.fit(training.trainer([rule], 4, precision="64-true"), run, held)
    expected = in_float64(4, x.double() / 255 if in_bytes else x, y, parts)
    for parameter, wanted in zip(run.model.parameters(), expected.parameters(), strict=True):
        assert parameter.dtype == torch.float64
        torch.testing.assert_close(parameter, wanted, rtol=1e-13, atol=1e-15)
    with torch.no_grad():
        right = expected(x.double() / 255 if in_bytes else x).argmax(1) == y
    assert run.evaluation["accuracy"] == pytest.approx(right.double().mean().item(), abs=1e-6)


class HalfOnCpu(MixedPrecision):
    """Float16, which Lightning replaces by bfloat16 on a CPU."""

    def __init__(self):
        super().__init__("16-mixed", "cpu")


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_mixed_precision_is_for_the_clients_passes_alone(precision):
    """The rule, the server and the evaluation compute in float32, as does everything in the next run."""
    seen = []

    class Watching(nn.Linear):
        def forward(self, x):
            found = super().forward(x)
            seen.append((self.training, found.dtype))
            return found

    class Asking(Average):
        def aggregate(self, updates, server):
            assert (updates.rows @ updates.rows.T).dtype == updates.dtype == torch.float32
            return super().aggregate(updates, server)

    def trained(**settings):
        run = FederatedModule(Watching(2, 3), client)
        run.model.load_state_dict(world.model().state_dict())
        training.fit(training.trainer([Asking()], 3, **settings), run)
        return torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])

    client = Gradient()
    mixed = trained(**({"plugins": [HalfOnCpu()]} if precision == "16-mixed" else {"precision": precision}))
    low = torch.bfloat16 if precision == "bf16-mixed" else torch.float16
    assert (True, low) in seen
    assert (False, torch.float32) in seen
    assert (False, low) not in seen
    seen.clear()
    plain = trained()
    assert {dtype for _, dtype in seen} == {torch.float32}
    assert mixed.dtype == torch.float32
    assert 1e-6 < (mixed - plain).norm() / plain.norm() < 0.01


@pytest.mark.parametrize("n_byzantine", [0, 3])
def test_the_loss_weighs_clients_as_the_data_do(tmp_path, n_byzantine):
    """By samples held, 17 or 18 of 120, it is the mean over all samples of honest clients, whoever attacks beside."""
    record, federation = Record(tmp_path), data(n_clients=7, n_byzantine=n_byzantine, weights="samples")
    trainer(tmp_path, 1, record, Ipm(1.0)).fit(module(), datamodule=federation)
    x, y = federation.train.gather(torch.arange(120))
    assert {len(indices) for indices in federation.clients.indices} == {17, 18}
    expected = nn.functional.cross_entropy(world.model()(x), y).item()
    assert record.metrics.rows[0]["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
@pytest.mark.parametrize("rule", [None, boba()])
def test_resumed_equals_never_stopped_bit_for_bit(tmp_path, stop, rule):
    """With random noise, momentum and a schedule; the record too."""

    def run(rounds, ckpt_path=None):
        federated, record = module(), Record(tmp_path / f"{rounds}{bool(ckpt_path)}")
        callbacks = [record, Gaussian(1.0, "updates"), *([copy.deepcopy(rule)] if rule else [])]
        fit = trainer(tmp_path, rounds, *callbacks)
        fit.fit(federated, datamodule=data(), ckpt_path=ckpt_path)
        return fit, federated, record

    _, whole, whole_record = run(7)
    first, _, _ = run(stop)
    first.save_checkpoint(tmp_path / "half.ckpt")
    second, resumed, record = run(7, tmp_path / "half.ckpt")
    assert second.global_step == 7
    for parameter, expected in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(parameter, expected)
    rounds = [row["round"] for row in record.metrics.rows]
    assert rounds == list(range(1, 8))
    # The stopped run was evaluated once more, where it stopped.
    pairs = zip(without_time(record.metrics.rows), without_time(whole_record.metrics.rows), strict=True)
    assert all({name: row[name] for name in expected} == expected for row, expected in pairs)
    assert record.weights.rows == whole_record.weights.rows


def test_counts_what_is_sent_and_computed(tmp_path):
    """10 clients send and get a model of 9 numbers; the 8 honest ones compute a gradient of each of 120 samples."""
    record = Record(tmp_path)
    trainer(tmp_path, 2, record, Ipm(1.0)).fit(module(), datamodule=data())
    for row in record.metrics.rows:
        costs = {name: value for name, value in row.items() if name.startswith("communication/")}
        assert costs == {
            "communication/floats_up": 90,
            "communication/floats_down": 90,
            "communication/sample_gradients": 120,
        }


def test_counts_what_compressing_clients_send(tmp_path):
    """10 clients send 2 of 9 numbers, each of 32 bits and 4 for its place."""
    record = Record(tmp_path)
    run = FederatedModule(world.model(), TopK(Gradient(), ratio=0.25))
    trainer(tmp_path, 1, record, Ipm(1.0)).fit(run, datamodule=data())
    assert record.metrics.rows[0]["communication/floats_up"] == 22.5


def test_each_phase_has_its_own_seconds(tmp_path, monkeypatch):
    """By a clock that clients, attack, rule and server put forward."""
    now = [0.0]

    def taking(seconds, kind, method):
        def slow(self, *args, **settings):
            now[0] += seconds
            return getattr(kind, method)(self, *args, **settings)

        return type(kind.__name__, (kind,), {method: slow})

    monkeypatch.setattr("lightning_fl.module.perf_counter", lambda: now[0])
    server = taking(1000.0, torch.optim.SGD, "step")
    fitted = FederatedModule(world.model(), taking(1.0, Gradient, "updates")(), partial(server, lr=0.1))
    record, attack, rule = Record(None), taking(10.0, Ipm, "attack")(1.0), taking(100.0, Average, "aggregate")()
    trainer(tmp_path, 2, record, attack, rule).fit(fitted, datamodule=data())
    for row in record.metrics.rows:
        assert {name: value for name, value in row.items() if name.startswith("seconds/")} == {
            "seconds/clients": 1,
            "seconds/attack": 10,
            "seconds/aggregator": 100,
            "seconds/robustness": 0,
            "seconds/server": 1000,
        }


def test_finds_rule_and_attack_among_the_callbacks(tmp_path):
    run, rule, attack = module(), boba(), Ipm(1.0)
    trainer(tmp_path, 1, attack, rule).fit(run, datamodule=data())
    assert run.aggregator is rule
    assert run.adversary is attack


def test_supplement_and_replacement(tmp_path):
    for placement, honest, n in [("supplement", 8, 10), ("replacement", 6, 8)]:
        record = Record(tmp_path / placement)
        trainer(tmp_path, 1, record, Ipm(1.0)).fit(module(), datamodule=data(byzantine=placement))
        row = record.weights.rows[0]
        assert len(row) - 1 == n
        assert record.metrics.rows[0]["weight/honest"] == pytest.approx(honest / n)


def test_reports_max_recall_drop_against_the_reference(tmp_path):
    run = module(reference=[1.0, 1.0, 1.0])
    trainer(tmp_path, 4).fit(run, datamodule=data(n_byzantine=0))
    recall = [run.evaluation[f"recall/{z}"] for z in range(3)]
    assert run.evaluation["mrd"] == pytest.approx(max(1 - value for value in recall), abs=1e-6)
    assert run.evaluation["accuracy"] == pytest.approx(sum(recall) / 3, abs=1e-5)


def test_a_diverged_run_stops_with_its_reason_and_keeps_its_rows(tmp_path):
    run, record = module(lr=1e30, momentum=0.0), Record(tmp_path)
    trainer(tmp_path, 50, record, Ipm(1e10)).fit(run, datamodule=data())
    assert run.diverged is not None
    assert "round" in run.diverged
    assert 1 <= len(record.metrics.rows) < 50
    assert (tmp_path / "metrics.csv").read_text().count("\n") == len(record.metrics.rows) + 1


@pytest.mark.parametrize("rounds", [2, 3, 10])
def test_a_model_that_no_longer_predicts_has_diverged_even_if_in_the_last_round(tmp_path, rounds):
    """The updates of round 2 are finite, the model after them gives none; the trainer evaluates every second round."""

    class Late(Ipm):
        def attack(self, honest, n_byzantine, context):
            forged = super().attack(honest, n_byzantine, context)
            return torch.full_like(forged, 3e38) if context.round.index == 1 else forged

    run, record = module(lr=1e3, momentum=0.0), Record(tmp_path)
    trainer(tmp_path, rounds, record, Late(1.0)).fit(run, datamodule=data())
    assert re.fullmatch(r"round 2: the model's outputs are not finite for \d+ of 30 test samples", run.diverged)
    assert record.metrics.rows[-1]["round"] == 2
    assert not any("accuracy" in row for row in record.metrics.rows)  # what such a model predicts means nothing
    assert (run.evaluation, run.confusion) == ({}, None)
    assert run.trainer.callback_metrics["accuracy"].isnan()  # which callbacks may watch


def test_one_class_is_none_to_tell_apart(tmp_path):
    x, y = torch.zeros(12, 2), torch.zeros(12, dtype=torch.int64)
    alone = TensorData((x, y), (x, y), Iid(), n_clients=3)
    with pytest.raises(SettingError, match="a classifier needs at least 2 classes, the data have 1"):
        trainer(tmp_path, 1).fit(module(), datamodule=alone)


def test_a_round_of_broken_updates_ends_a_run_as_diverged():
    """The losses before the local steps are fine, what the clients upload is not."""

    class Broken(Gradient):
        def updates(self, model, batch, this_round, out=None):
            result = super().updates(model, batch, this_round, out)
            result.updates[:] = torch.nan
            return result

    for rule in (Krum(2), Median("lower")):
        run = FederatedModule(world.model(), Broken(), lambda parameters: torch.optim.SGD(parameters, lr=0.1))
        training.trainer([rule], 3).fit(run, datamodule=data(n_byzantine=0))
        assert "round 1: " in run.diverged
        assert "needs at least one update without NaN and inf, got none among 8" in run.diverged


@pytest.mark.parametrize("lost", [False, True])
def test_a_bug_in_a_rule_of_ones_own_is_no_divergence(lost):
    """A rule is not asked about a round whose loss is lost, so whatever it raises is its own."""

    class Lost(Gradient):
        def updates(self, model, batch, this_round, out=None):
            result = super().updates(model, batch, this_round, out)
            if lost and this_round.index:
                result.losses[0] = torch.nan
            return result

    class Wrong(Average):
        def aggregate(self, updates, server):
            if server.round.index:
                raise KeyError("a bug")
            return super().aggregate(updates, server)

    run = FederatedModule(world.model(), Lost(), lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    with nullcontext() if lost else pytest.raises(KeyError, match="a bug"):
        training.trainer([Wrong()], 3).fit(run, datamodule=data(n_byzantine=0))
    assert run.diverged == ("round 2: the honest clients' mean loss is nan" if lost else None)


def test_what_clients_remember_does_not_hinder_evaluation(tmp_path):
    """A checkpoint of RSA holds every client's model; a module that only evaluates has none."""

    def make():
        return FederatedModule(
            world.model(), Rsa(0.5, "huber", 0.1, 0.0), lambda parameters: torch.optim.SGD(parameters, lr=0.1)
        )

    trained, loaded = make(), make()
    fitting = trainer(tmp_path, 3, ClippedSum(0.5, "huber"))
    fitting.fit(trained, datamodule=data(n_byzantine=0))
    fitting.save_checkpoint(tmp_path / "rsa.ckpt")
    fitting.test(trained, datamodule=data(n_byzantine=0), verbose=False)
    trainer(tmp_path, 3).test(loaded, datamodule=data(n_byzantine=0), ckpt_path=tmp_path / "rsa.ckpt", verbose=False)
    assert loaded.evaluation["accuracy"] == trained.evaluation["accuracy"]
    for ours, theirs in zip(loaded.model.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    remembered = trained.client.w.clone()
    fitting.test(trained, datamodule=data(n_byzantine=0), ckpt_path=tmp_path / "rsa.ckpt", verbose=False)
    assert torch.equal(trained.client.w, remembered)


def test_what_clients_remember_outlives_a_pause(tmp_path):
    """More rounds of the same trainer go on; another trainer begins anew."""

    def make():
        return FederatedModule(world.model(), Rsa(0.5, "huber", 0.1, 0.0), partial(torch.optim.SGD, lr=0.1))

    whole, paused = make(), make()
    trainer(tmp_path, 4, ClippedSum(0.5, "huber")).fit(whole, datamodule=data(n_byzantine=0))
    pausing = trainer(tmp_path, 2, ClippedSum(0.5, "huber"))
    for rounds in (2, 4):
        pausing.fit_loop.epoch_loop.max_steps = rounds
        pausing.fit(paused, datamodule=data(n_byzantine=0))
    assert pausing.global_step == 4
    assert torch.equal(paused.client.w, whole.client.w)
    trainer(tmp_path, 4, ClippedSum(0.5, "huber")).fit(paused, datamodule=data(n_byzantine=0))
    assert not torch.equal(paused.client.w, whole.client.w)  # the model went on, from other memories


def test_an_attacker_asks_the_round_s_own_rule(tmp_path):
    """Byzantine clients that replace honest ones hold data too: here not as much as the average client."""

    class Asks(Ipm):
        def attack(self, honest, n_byzantine, context):
            forged = super().attack(honest, n_byzantine, context)
            context.rule(Updates(torch.cat([honest.rows, forged])))
            return forged

    class Seen(Average):
        def aggregate(self, updates, server):
            seen.append((updates.data_weights, updates.ids, updates.rows.clone()))
            return super().aggregate(updates, server)

    seen = []
    trainer(tmp_path, 1, Asks(1.0), Seen()).fit(module(), datamodule=data(7, 2, "replacement", weights="samples"))
    (weights, ids, rows), (own_weights, own_ids, own_rows) = seen
    assert torch.equal(weights, own_weights)
    assert len(weights.unique()) > 1
    assert list(ids) == list(own_ids) == [0, 1, 2, 3, 4, 5, 6]
    assert torch.equal(rows, own_rows)


def test_an_attacker_does_not_know_what_the_server_will_draw(tmp_path):
    class Draws(Average):
        def aggregate(self, updates, server):
            drawn.append((torch.rand(1, generator=server.generator("buckets")).item(), server.derive_seed("ties")))
            return super().aggregate(updates, server)

    drawn = []
    trainer(tmp_path, 2, Ipm(1.0), Draws()).fit(module(), datamodule=data())
    unasked, drawn = drawn, []
    trainer(tmp_path, 2, Noting(1.0), Draws()).fit(module(), datamodule=data())
    assert drawn[1::2] == unasked
    assert all(len(set(draws)) == 4 for draws in zip(*drawn, strict=True))


class Noting(Ipm):
    """Inner-product manipulation that notes what it knows."""

    def __init__(self, factor):
        super().__init__(factor)
        self.notes = []

    def attack(self, honest, n_byzantine, context):
        forged = super().attack(honest, n_byzantine, context)
        trust = context.trust(Updates(torch.cat([honest.rows, forged])))
        self.notes.append((context.previous_update, list(context.honest_ids), trust))
        return forged


class Answers(Average):
    """Plain averaging that keeps what it answered."""

    def __init__(self):
        self.answers = []

    def aggregate(self, updates, server):
        self.answers.append(super().aggregate(updates, server))
        return self.answers[-1]


def test_an_attacker_knows_the_last_update_the_honest_clients_and_the_trust(tmp_path):
    attack, rule = Noting(1.0), Answers()
    federation = Small(
        Iid(), Federation(8, 2, "replacement", "uniform", participation=0.5, seed=1), 5, 0, 0, eval_batch_size=16
    )
    trainer(tmp_path, 4, attack, rule).fit(module(), datamodule=federation)
    before, ids, trust = zip(*attack.notes, strict=True)
    assert before[0] is None
    real = rule.answers[1::2]  # beside each round's own there is the attacker's question
    for known, answer in zip(before[1:], real, strict=False):
        assert torch.equal(known, answer.update)
    assert list(ids) == [federation.federation.participants(t)[0] for t in range(4)]
    for found, answer in zip(trust, real, strict=True):
        assert torch.equal(found, answer.weights)


def test_a_coordinate_rule_has_no_trust_to_tell(tmp_path):
    attack = Noting(1.0)
    trainer(tmp_path, 1, attack, Median("lower")).fit(module(), datamodule=data())
    assert attack.notes[0][2] is None


@pytest.mark.parametrize("attack", [Rop(1.0, 90.0, 0.5, 0.9), MimicLearned(3)])
@pytest.mark.parametrize("stop", [1, 4])
def test_attacks_that_remember_resume_bit_for_bit(tmp_path, attack, stop):
    def run(rounds, ckpt_path=None):
        federated = module()
        fit = trainer(tmp_path, rounds, copy.deepcopy(attack))
        fit.fit(federated, datamodule=data(), ckpt_path=ckpt_path)
        return fit, federated

    _, whole = run(6)
    first, half = run(stop)
    first.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = run(6, tmp_path / "half.ckpt")
    for parameter, expected, earlier in zip(
        resumed.model.parameters(), whole.model.parameters(), half.model.parameters(), strict=True
    ):
        assert torch.equal(parameter, expected)
        assert not torch.equal(parameter, earlier)


def test_a_new_run_of_the_same_module_knows_no_last_update(tmp_path):
    run, attack = module(), Noting(1.0)
    for _ in range(2):
        trainer(tmp_path, 2, attack).fit(run, datamodule=data())
    assert [before is None for before, _, _ in attack.notes] == [True, False, True, False]


@pytest.mark.parametrize("rule", [CentredClipping(0.1, 1), ClippedClustering("average", 1e5), Foolsgold(), Average()])
def test_a_new_run_of_the_same_rule_and_attack_remembers_nothing(tmp_path, rule):
    def trained(seed, *callbacks):
        federated, federation = module(), data()
        federation.seed = seed
        trainer(tmp_path, 4, *callbacks).fit(federated, datamodule=federation)
        return torch.cat([p.detach().flatten() for p in federated.model.parameters()])

    attack = MimicLearned(2)
    expected = trained(0, copy.deepcopy(rule), copy.deepcopy(attack))
    trained(5, rule, attack)
    assert torch.equal(trained(0, rule, attack), expected)


def test_a_new_run_of_a_module_has_not_diverged(tmp_path):
    run = module()
    trainer(tmp_path, 3, Gaussian(3e38, "updates")).fit(run, datamodule=data())
    assert run.diverged
    run.model.load_state_dict(world.model().state_dict())
    trainer(tmp_path, 3, Ipm(1.0)).fit(run, datamodule=data())
    assert run.diverged is None


def test_evaluations_report_what_an_attack_observes(tmp_path):
    run = module()
    trainer(tmp_path, 2, LabelFlipPair(0, 1)).fit(run, datamodule=data())
    assert run.evaluation["attack/source_recall"] == pytest.approx(run.evaluation["recall/0"], abs=1e-6)
    assert run.evaluation["attack/source_as_target"] == pytest.approx(run.confusion[0][1] / 10, abs=1e-6)


def test_an_evaluation_by_itself_knows_its_own_attack(tmp_path):
    run = module()
    trainer(tmp_path, 2, LabelFlipPair(0, 1)).fit(run, datamodule=data())
    for fresh in [run, module(run.model)]:
        (found,) = trainer(tmp_path, 2, LabelFlipPair(2, 1)).test(fresh, datamodule=data())
        assert found["attack/source_recall"] == pytest.approx(found["recall/2"], abs=1e-6)
        (found,) = trainer(tmp_path, 2).test(fresh, datamodule=data())
        assert not any(name.startswith("attack/") for name in found)


def test_nobody_s_attack_is_not_asked_whether_it_fits(tmp_path):
    class Shared(Ipm):
        def check(self, n_honest, n_byzantine, n_classes):
            n_honest / n_byzantine

    trainer(tmp_path, 1, Shared(1.0)).fit(module(), datamodule=data(n_byzantine=0))


def test_names_the_rule_that_broke_a_round_itself(tmp_path):
    class Broken(Average):
        def aggregate(self, updates, server):
            return Aggregation(torch.full((updates.d,), torch.nan))

    run = module()
    trainer(tmp_path, 3, Broken(), Ipm(1.0)).fit(run, datamodule=data())
    assert run.diverged == "round 1: the aggregated update is not finite (all updates are: the rule made it)"


def test_a_client_that_forgets_its_base_is_named():
    class Forgetful(Gradient):
        def __init__(self):
            self.k = 1

    with pytest.raises(SettingError, match=r"Forgetful needs super\(\).__init__\(\) first"):
        FederatedModule(nn.Linear(2, 2), Forgetful())


def test_names_the_client_that_broke_the_average(tmp_path):
    class Nan(Ipm):
        def attack(self, honest, n_byzantine, context):
            rows = super().attack(honest, n_byzantine, context).clone()
            rows[0, 0] = torch.nan
            return rows

    run = module()
    before = [parameter.clone() for parameter in run.model.parameters()]
    trainer(tmp_path, 3, Nan(1.0)).fit(run, datamodule=data())
    assert run.diverged == ("round 1: the aggregated update is not finite (non-finite updates: Byzantine client 8)")
    assert all(torch.equal(p, q) for p, q in zip(run.model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("make", "callbacks", "message"),
    [
        (lambda: (module(), data()), [], "2 Byzantine clients need an adversary, got none"),
        (lambda: (module(), data()), [Ipm(1.0), Ipm(2.0)], "at most one Adversary, got Ipm and Ipm"),
        (lambda: (module(), data(n_byzantine=9)), [Lie(None)], "no more Byzantine than honest ones, got 9 and 8"),
        (lambda: (module(), data()), [LabelFlipPair(0, 3)], "label_flip_pair needs classes below 3, got 3"),
        (lambda: (module(), data()), [LabelFlipPair(0, 1, epochs=2)], "need clients with local steps of their own"),
        (lambda: (module(), data()), [Ipm(1.0), boba(9)], r"boba needs .*n >= f \+ c updates"),
        (lambda: (module(nn.Linear(2, 5)), data()), [Ipm(1.0)], "3 classes, Linear gives outputs of shape"),
        (lambda: (module(nn.Linear(7, 3)), data()), [Ipm(1.0)], "does not take inputs of shape"),
        (lambda: (module(), data(server_samples=41)), [Ipm(1.0)], "41 samples of class 0, got 40"),
        (lambda: (module(), data(n_clients=500)), [Ipm(1.0)], "every client needs a sample"),
        (lambda: (module(reference=[1.0]), data()), [Ipm(1.0)], "the reference has 1 recalls, the data 3 classes"),
        (
            lambda: (module(reference=[95.0, 90.0, 91.0]), data()),
            [Ipm(1.0)],
            r"recalls are in \[0, 1\], got \[95.0, 90.0, 91.0\]",
        ),
        (lambda: (module(), data(server_samples=0)), [Ipm(1.0), boba()], "needs server data, got none"),
        (
            lambda: (FederatedModule(world.model(), Rsa()), data()),
            [Ipm(1.0), boba()],
            "Boba needs a client that",
        ),
    ],
)
def test_refuses_what_does_not_fit_before_training(tmp_path, make, callbacks, message):
    run, federation = make()
    with pytest.raises(SettingError, match=message):
        trainer(tmp_path, 1, *callbacks).fit(run, datamodule=federation)


def test_needs_a_module():
    with pytest.raises(SettingError, match=r"model must be a Module such as nn\.Linear\(784, 10\), got 3"):
        FederatedModule(3)


class Returning(Weighting):
    """Weights that somebody got wrong."""

    def __init__(self, *found):
        self.found = found

    def weights(self, updates, server):
        return self.found[0]


class Answering(Returning):
    """The same of a whole rule."""

    def aggregate(self, updates, server):
        return self.found[0]


class Sending(Ipm):
    """The same of an attack."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def attack(self, honest, n_byzantine, context):
        return self.found


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (
            [Returning(torch.ones(9))],
            r"result of Returning.weights must be a tensor of shape \(10,\), got shape \(9,\)",
        ),
        ([Returning([0.1] * 10)], r"result of Returning.weights must be a tensor of shape \(10,\), got list"),
        ([Answering(torch.ones(9))], "Answering.aggregate must return an Aggregation, got Tensor"),
        ([Nnm(Answering(torch.ones(9)), 2)], "Answering.aggregate must return an Aggregation, got Tensor"),
        (
            [Answering(Aggregation(torch.ones(10)))],
            r"answer of Answering.aggregate must be a tensor of shape \(9,\), got shape \(10,\)",
        ),
        (
            [Answering(Aggregation(torch.ones(9), torch.ones(9)))],
            r"weights of Answering.aggregate must be a tensor of shape \(10,\), got shape \(9,\)",
        ),
        (
            [Answering(Aggregation(torch.ones(9), trust=torch.ones(9)))],
            r"trust of Answering.aggregate must be a tensor of shape \(10,\), got shape \(9,\)",
        ),
        (
            [Answering(Aggregation(torch.ones(9), label_distributions=torch.ones(10, 4)))],
            r"label_distributions of Answering.aggregate must be a tensor of shape \(10, 3\), got shape \(10, 4\)",
        ),
        (
            [Sending(torch.ones(1, 9))],
            r"result of Sending.attack must be a tensor of shape \(2, 9\), got shape \(1, 9\)",
        ),
        ([Sending(torch.ones(9))], r"result of Sending.attack must be a tensor of shape \(2, 9\), got shape \(9,\)"),
        ([Sending(None)], r"result of Sending.attack must be a tensor of shape \(2, 9\), got NoneType"),
    ],
)
def test_says_what_a_rule_or_an_attack_of_ones_own_got_wrong(tmp_path, callbacks, message):
    attack = [] if isinstance(callbacks[0], Sending) else [Ipm(1.0)]
    with pytest.raises(SettingError, match=message):
        trainer(tmp_path, 1, *callbacks, *attack).fit(module(), datamodule=data())


@pytest.mark.parametrize(
    ("diagnostics", "message"),
    [
        ([0.5], "must be a dict, got list"),
        ({"steps": "3"}, "must be numbers, got str for steps"),
        ({"lengths": torch.ones(2)}, "must be numbers, got Tensor for lengths"),
    ],
)
def test_diagnostics_are_numbers(tmp_path, diagnostics, message):
    rule = Answering(Aggregation(torch.ones(9), diagnostics=diagnostics))
    with pytest.raises(SettingError, match=f"the diagnostics of Answering.aggregate {message}"):
        trainer(tmp_path, 1, rule, Ipm(1.0)).fit(module(), datamodule=data())


def test_a_lost_process_is_no_divergence(tmp_path, monkeypatch):
    class Lost(Average):
        def aggregate(self, updates, server):
            raise ProcessError("process 0 of 2 no longer reaches the others")

    fitted = module()
    with pytest.raises(ProcessError, match="no longer reaches"):
        trainer(tmp_path, 2, Lost(), Ipm(1.0)).fit(fitted, datamodule=data())


def test_a_rule_may_answer_in_another_type(tmp_path):
    class Precise(Average):
        def aggregate(self, updates, server):
            return Aggregation(updates.rows.double().mean(0))

    fitted, expected = module(), module()
    trainer(tmp_path, 2, Precise()).fit(fitted, datamodule=data(n_byzantine=0))
    trainer(tmp_path, 2, Average()).fit(expected, datamodule=data(n_byzantine=0))
    torch.testing.assert_close(fitted.model.weight, expected.model.weight)


def test_a_measurement_leaves_every_part_in_its_mode(tmp_path):
    class Frozen(Average):
        def on_train_batch_start(self, trainer, pl_module, *args):
            pl_module.model[1].eval()
            pl_module.measured()
            self.modes = [part.training for part in pl_module.model]

    rule = Frozen()
    trainer(tmp_path, 1, rule, Ipm(1.0)).fit(module(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))), datamodule=data())
    assert rule.modes == [True, False]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (20, "each of 20 processes needs a parameter of the model, got 9"),
        (999, "each of 999 processes needs a test sample, got"),
    ],
)
def test_refuses_more_processes_than_parameters_or_test_samples(tmp_path, devices, message):
    many = training.trainer([Ipm(1.0)], default_root_dir=tmp_path, strategy=ClientParallel(), devices=devices)
    federation = data()
    federation.setup("fit")
    with pytest.raises(SettingError, match=message):
        module().check(many, federation)


def test_nothing_is_logged_every_0_rounds(tmp_path):
    silent = training.trainer([Ipm(1.0)], 2, default_root_dir=tmp_path, log_every_n_steps=0)
    silent.fit(module(), datamodule=data())
    assert silent.global_step == 2


def test_refuses_a_checkpoint_of_another_model(tmp_path):
    first = trainer(tmp_path, 1, Ipm(1.0))
    first.fit(module(), datamodule=data())
    first.save_checkpoint(tmp_path / "other.ckpt")
    wider = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))
    with pytest.raises(SettingError, match="the checkpoint is of another model"):
        trainer(tmp_path, 2, Ipm(1.0)).fit(module(wider), datamodule=data(), ckpt_path=tmp_path / "other.ckpt")


def test_needs_a_number_of_rounds(tmp_path):
    with pytest.raises(SettingError, match=r"set trainer\.max_steps"):
        trainer(tmp_path, -1, Ipm(1.0)).fit(module(), datamodule=data())


@pytest.mark.parametrize(
    ("rule", "more"),
    [
        (Average(), []),
        (Normalized(), ["row_norms"]),
        (Krum(2), ["centred_products"]),
        (GeometricMedian(), ["centred_products"]),
        (Boba(2), ["centred_products"]),
        (Nnm(TrimmedMean(2), 2), ["centred_products"]),
        (Median(), ["which_finite"]),
    ],
)
@pytest.mark.parametrize("client", [Gradient(), Gradient(batch_size=4), Gradient(client_chunk=1)])
def test_a_gpu_is_waited_for_twice_a_round(rule, more, client):
    """By a rule, once, and at the end; this is the last round of three, as the first ones try out how to compute."""
    fitted = module()
    fitted.client = client
    with PretendedDevice() as gpu:
        seen = Waits(gpu)
        training.trainer([rule, Lie(0.7), seen], 3, accelerator="auto", strategy=gpu.strategy()).fit(
            fitted, datamodule=data()
        )
    assert seen.waits == [*more, "_read"]
    assert seen.copies == []
    assert seen.places == {gpu.device}


class Overflowing(Gradient):
    """Clients whose losses and updates are not numbers."""

    def updates(self, *args, **settings):
        result = super().updates(*args, **settings)
        result.updates.fill_(torch.nan)
        return replace(result, losses=result.losses * torch.nan)


def test_a_loss_that_is_not_finite_is_told_of_on_a_gpu_too():
    """It is read at the end of the round, after a rule that can make nothing of such updates."""
    broken = module()
    broken.client = Overflowing()
    with PretendedDevice() as gpu:
        training.trainer([Krum(2), Lie(0.7)], 3, accelerator="auto", strategy=gpu.strategy()).fit(
            broken, datamodule=data()
        )
    assert broken.diverged == "round 1: the honest clients' mean loss is nan"


class Seen(pl.Callback):
    """What callbacks are told after each round and each evaluation."""

    def __init__(self):
        self.losses, self.evaluations = [], []

    def on_train_batch_end(self, trainer, *_):
        self.losses.append(trainer.callback_metrics["loss"].item())

    def on_validation_end(self, trainer, *_):
        self.evaluations.append({name: value.item() for name, value in trainer.callback_metrics.items()})


def test_callbacks_are_told_of_rounds_and_evaluations(tmp_path):
    """As `EarlyStopping` and `ModelCheckpoint` need it; loggers have the same by round."""
    seen, record, logger = Seen(), Record(None), CSVLogger(tmp_path)
    trained = training.trainer([seen, record], rounds=5, logger=logger)
    module_ = training.fit(trained, data_=data(n_byzantine=0))
    assert seen.losses == pytest.approx([row["loss"] for row in record.metrics.rows])
    assert [told["accuracy"] for told in seen.evaluations] == pytest.approx(
        [row["accuracy"] for row in record.metrics.rows if "accuracy" in row]
    )
    assert len(seen.evaluations) == 2
    logger.finalize("success")
    with Path(logger.log_dir, "metrics.csv").open(newline="") as file:
        logged = {int(row["step"]): row for row in csv.DictReader(file)}
    assert {step for step, row in logged.items() if row["accuracy"]} == {0, 2, 4}  # the record logs the first model
    assert sorted(logged) == list(range(6))
    stop = EarlyStopping("loss", stopping_threshold=seen.losses[2] + 1e-6, patience=99)
    trained = training.trainer([stop], rounds=9)
    training.fit(trained, data_=data(n_byzantine=0))
    assert trained.global_step == 4  # the first evaluation after the third round
    with training.quiet():
        (found,) = trained.validate(module_, datamodule=data(n_byzantine=0), verbose=False)
    assert found == pytest.approx(module_.evaluation)


def test_rounds_share_their_memory_and_give_it_back(tmp_path):
    places = []

    class Watched(Average):
        def aggregate(self, updates, server):
            places.append(updates.rows.data_ptr())
            return super().aggregate(updates, server)

    fitted = module()
    trainer(tmp_path, 3, Watched(), Ipm()).fit(fitted, datamodule=data())
    assert (len(places), len(set(places))) == (3, 1)
    assert fitted.storage._kept == []


def test_called_and_asked_to_predict():
    """As any Lightning module; a loader gives inputs, alone or with targets."""
    module, inputs = training.module(), torch.arange(8.0).view(4, 2)
    expected = module.model(inputs).detach()
    assert torch.equal(module(inputs), expected)
    for data in (inputs, TensorDataset(inputs, torch.arange(4))):
        with training.quiet():
            found = training.trainer().predict(module, DataLoader(data, batch_size=3))
        assert torch.equal(torch.cat(found), expected)
