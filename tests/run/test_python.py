"""A run in plain Python."""

import json
import re
import signal
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.strategies import DDPStrategy
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

import lightning_fl as fl
from lightning_fl import DataError, Federation, SettingError, TensorData
from lightning_fl.adversary.adaptive import Adaptive
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.non_finite import NonFinite
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.callback.graceful_stop import GracefulStop
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import conf, world
from lightning_fl.module import FederatedModule
from lightning_fl.partition.iid import Iid
from lightning_fl.run.python import load_model, train
from lightning_fl.run.saved import SavedRun
from lightning_fl.run.train import train as train_into
from tests import training


def samples(per_class, seed=0):
    found = world.samples(per_class, seed)
    return found.inputs, found.targets


def data(**settings):
    settings = {"n_clients": 6, "n_byzantine": 1, "server_samples": 2, "eval_batch_size": 4} | settings
    return TensorData(samples(6), samples(3, seed=1), Iid(), **settings)


def net():
    return nn.Linear(2, 3)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(autouse=True)
def _nowhere(tmp_path, monkeypatch):
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not [path for path in tmp_path.iterdir() if path.name != "wanted"]


@pytest.mark.parametrize(("rounds", "every", "evaluations"), [(4, 2, 2), (5, 2, 3), (1, 10, 1), (6, 6, 1)])
def test_the_last_round_is_evaluated_once(rounds, every, evaluations, monkeypatch):
    seen, evaluate = [], FederatedModule.on_validation_epoch_end

    def count(module):
        seen.append(module.trainer.global_step)
        evaluate(module)

    monkeypatch.setattr(FederatedModule, "on_validation_epoch_end", count)
    monkeypatch.setattr(FederatedModule, "on_test_epoch_end", count)
    run = train(net, data(n_byzantine=0), rounds=rounds, evaluate_every=every)
    assert seen[-1] == rounds
    assert len(seen) == len(set(seen)) == evaluations
    assert run.accuracy == run.metrics[-1]["accuracy"] is not None


def test_the_same_arguments_give_the_same_bits_whatever_was_drawn_before():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    rule, attack = Krum(f=1), Ipm()
    first = train(net, data(), rule, attack, rounds=5, client=LocalSgd(2, batch_size=2))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second = train(net, data(), rule, attack, rounds=5, client=LocalSgd(2, batch_size=2))
    assert torch.equal(weights(first.model), weights(second.model))
    assert first.weights == second.weights
    other = train(net, data(), rule, attack, rounds=5, client=LocalSgd(2, batch_size=2), seed=1)
    assert not torch.equal(weights(first.model), weights(other.model))


def test_it_is_the_run_that_lightning_makes():
    found = train(world.model(), data(), Median(), Ipm(2.0), rounds=6, lr=0.3)
    trainer = training.trainer([Median(), Ipm(2.0)], rounds=6)
    module = training.fit(trainer, training.module(0.3), data())
    assert torch.equal(weights(found.model), weights(module.model))
    assert found.accuracy == module.evaluation["accuracy"]
    assert found.recall == [module.evaluation[f"recall/{z}"] for z in range(3)]


def test_a_class_without_test_samples_is_not_measured():
    (x, y), (x_test, y_test) = samples(6), samples(3, seed=1)
    seen = y_test != 1
    some = TensorData((x, y), (x_test[seen], y_test[seen]), Iid(), n_clients=6)
    run = train(world.model(), some, rounds=4, reference_recall=[1.0, 1.0, None])
    right = run.model(x_test).argmax(1) == y_test
    recall = [right[y_test == z].float().mean().item() for z in range(3)]
    assert run.recall == [pytest.approx(recall[0], abs=1e-6), None, pytest.approx(recall[2], abs=1e-6)]
    assert run.summary["mrd"] == pytest.approx(1 - recall[0], abs=1e-6)
    assert run.summary["reference_recall"] == [1.0, 1.0, None]
    assert not any("recall/1" in row or np.nan in row.values() for row in run.metrics)
    assert {"recall", "drop"} <= run.plot().keys()
    nobody = train(world.model(), some, rounds=1, reference_recall=[None, 1.0, None])
    assert nobody.summary["mrd"] is None  # no class was measured in both


def test_the_model_is_as_it_was_evaluated():
    net = nn.Sequential(world.model(), nn.Dropout(0.8))
    run = train(net, data(), rounds=3)
    assert not run.model.training
    x, _ = samples(3, seed=1)
    assert torch.equal(run.model(x), run.model(x))
    assert net.training


def test_a_seed_may_be_any_whole_number_s_type():
    runs = [train(world.model(), data(), Krum(1), rounds=2, seed=seed) for seed in (3, np.int64(3), torch.tensor(3))]
    assert torch.equal(weights(runs[0].model), weights(runs[1].model))
    assert torch.equal(weights(runs[0].model), weights(runs[2].model))
    assert [run.config["seed"] for run in train(world.model(), data(), rounds=1, seed=np.arange(2))] == [0, 1]


def test_lightning_needs_no_argument_that_nobody_chose():
    module = fl.FederatedModule(world.model())
    settings = {"max_steps": 6, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(callbacks=[Median(), Ipm(2.0)], accelerator="cpu", enable_model_summary=False, **settings)
    with training.quiet():
        trainer.fit(module, datamodule=data())
    found = train(world.model(), data(), Median(), Ipm(2.0), rounds=6)
    assert torch.equal(weights(found.model), weights(module.model))


def test_a_module_is_used_as_it_is_and_stays_so():
    model = world.model()
    before = weights(model)
    first, second = (train(model, data(), rounds=3, seed=seed) for seed in (0, 1))
    assert torch.equal(weights(model), before)
    assert torch.equal(weights(first.model), weights(train(world.model(), data(), rounds=3).model))
    assert not torch.equal(weights(first.model), before)
    assert first.model is not model is not second.model
    with pytest.raises(SettingError, match="or a class or function that makes one, got int"):
        train(lambda: 3, data())


def test_rules_that_remember_start_afresh():
    rule = Foolsgold()
    first, second = (train(net, data(), rule, rounds=3) for _ in range(2))
    assert first.weights == second.weights
    assert rule.state_dict() == Foolsgold().state_dict()


def test_records_have_a_row_per_round():
    run = train(net, data(), Krum(f=1), Ipm(), rounds=5, evaluate_every=2)
    assert [row["round"] for row in run.metrics] == [1, 2, 3, 4, 5]
    assert [row["round"] for row in run.metrics if "accuracy" in row] == [2, 4, 5]
    assert run.metrics[-1]["accuracy"] == run.accuracy
    assert [len(row) for row in run.weights] == [8] * 5
    assert all(sum(row.values()) == row["round"] + 1 for row in run.weights)
    assert not train(net, data(), Median(), rounds=1).weights
    assert json.loads(json.dumps(run.summary)) == run.summary


def test_nobody_is_byzantine_without_an_attack():
    run = train(net, data(federation=Federation(6, 2, "replacement", "uniform", which="random")), rounds=2)
    assert run.summary["byzantine_clients"] == []
    assert run.title == "Average, no attack"


def test_an_attack_needs_attackers():
    with pytest.raises(SettingError, match="an attack needs Byzantine clients, got n_byzantine=0 in the data"):
        train(net, data(n_byzantine=0), Median(), Ipm())


@pytest.mark.parametrize("rule", [Krum, lambda f: Nnm(Median(), f), lambda f: Nnm(Krum(f=1), f), MultiKrum])
def test_an_f_that_is_no_integer_is_refused(rule):
    with pytest.raises(SettingError, match=r"needs a whole number as f, got '1'\."):
        train(net, data(), rule(f="1"), Ipm(), rounds=1)
    with pytest.raises(SettingError, match=r"needs a whole number as f, got 1.5; round it"):
        train(net, data(), rule(0.25 * 6), Ipm())
    with pytest.raises(SettingError, match=r"adaptive needs a whole number as evaluations, got 160.0"):
        train(net, data(), Krum(f=1), Adaptive(160.0))


def test_optimizer_and_schedule_are_the_servers():
    made = []

    def optimizer(parameters, lr):
        made.append(lr)
        return SGD(parameters, lr=lr, momentum=0.9)

    halve = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    run = train(net, data(), rounds=3, lr=0.4, optimizer=optimizer, schedule=halve)
    assert set(made) == {0.4}
    assert [row["learning_rate"] for row in run.metrics] == [0.4, 0.2, 0.1]


def test_a_diverged_run_has_no_result():
    run = train(net, data(), None, NonFinite(), rounds=5)
    assert run.diverged
    assert (run.accuracy, run.recall) == (None, None)
    assert run.summary["reason"].startswith("round 1: the aggregated update is not finite")


@pytest.mark.drawn
def test_pictures_are_the_reports():
    run = train(net, data(), Krum(f=1), Ipm(), rounds=2)
    pictures = run.plot()
    assert list(pictures) == ["recall", "confusion", "robustness", "detection", "weights", "clients"]
    assert [tick.get_text() for tick in pictures["clients"].axes[0].get_yticklabels()][-1] == "Byzantine"
    assert pictures["recall"].axes[0].get_title() == "Krum, 1 Ipm"
    assert pictures._repr_html_().count("<img ") == 6


def test_a_rate_may_be_a_tensor_and_keeps_its_value():
    def halving(optimizer):
        return LambdaLR(optimizer, lambda k: 0.5**k)

    rate = torch.tensor(0.5)
    run = train(net, data(), rounds=3, lr=rate, schedule=halving)
    assert [row["learning_rate"] for row in run.metrics] == [0.5, 0.25, 0.125]
    assert rate == 0.5


def test_a_model_in_evaluation_mode_is_trained_with_its_dropout():
    ready = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.9))
    expected = train(ready, data(), rounds=2)
    found = train(ready.eval(), data(), rounds=2)
    assert not ready.training
    assert found.metrics[-1]["loss"] == expected.metrics[-1]["loss"]


@pytest.mark.parametrize("setting", [{"rounds": 0}, {"evaluate_every": 0}])
def test_counts_are_at_least_one(setting):
    with pytest.raises(SettingError, match="must be a whole number of at least 1, got 0"):
        train(net, data(), **setting)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rule": Krum}, r"rule must be an Aggregator such as .*, got the class Krum; write Krum\(...\)"),
        ({"rule": "krum"}, r"rule must be an Aggregator such as fl.aggregator.Krum\(f=4\), got 'krum'"),
        ({"rule": Ipm(), "attack": Krum(f=1)}, "rule must be an Aggregator such as .*, got Ipm."),
        ({"attack": Ipm}, r"attack must be an Adversary such as fl.adversary.Ipm\(\), got the class Ipm"),
        ({"client": "gradient"}, "client must be a Client such as"),
        ({"data": (1, 2)}, r"data must be a FederatedDataModule such as fl.TensorData\(.*\), got tuple."),
        ({"rounds": "9"}, "rounds must be a whole number of at least 1, got '9'"),
        ({"round": 3}, "there is no setting of train round; did you mean rounds"),
        ({"optimizer": "sgd"}, "optimizer must be a class such as torch.optim.SGD, got 'sgd'"),
        ({"lr": "0.1"}, "lr must be a number, got '0.1'"),
        ({"lr": True}, "lr must be a number, got True"),
        ({"lr": torch.ones(2)}, "lr must be a number, got tensor"),
        ({"callbacks": [5]}, r"callbacks must be a Callback such as EarlyStopping\(.*\), got 5"),
        ({"lr": float("nan")}, "lr must be a finite number, got nan"),
        ({"lr": -1}, "lr must be at least 0, got -1.0"),
        ({"seed": "0"}, "a seed must be an integer, got '0'"),
        ({"model": "mlp"}, "a model is a module, or a class or function that makes one, got str."),
    ],
)
def test_parts_are_what_they_must_be(given, message):
    with pytest.raises(SettingError, match=message):
        train(**{"model": net, "data": data()} | given)


def test_a_strategy_of_ones_own_is_not_replaced():
    with pytest.raises(SettingError, match="needs lightning_fl's strategy ClientParallel, got DDPStrategy"):
        train(net, data(), strategy=DDPStrategy(process_group_backend="gloo"), devices=2, accelerator="cpu")


def test_parts_that_do_not_fit_are_refused_before_training():
    with pytest.raises(SettingError, match="krum needs"):
        train(net, data(), Krum(f=5), Ipm())


def never():
    raise AssertionError("called by somebody else's config.yaml")


def test_final_models_are_loaded_from_a_folder(tmp_path):
    folder = tmp_path / "wanted"
    small = ["data.n_train=200", "data.n_test=50", "data.features=8", "data.server_samples=1", "model.in_features=8"]
    run = ["trainer.max_steps=3", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false", "logger=none"]
    where = [f"run_dir={folder}", "run_name=x"]
    config = conf.compose("data=synthetic", "model.hidden=[4]", *small, *run, *where)
    with training.quiet():
        summary = train_into(config, folder, describe=False)
    model = load_model(folder)
    assert not model.training
    synthetic = fl.data.Synthetic(n_train=200, n_test=50, features=8, server_samples=1)
    inputs, targets = synthetic.load()[1].gather(torch.arange(50))
    assert (model(inputs).argmax(1) == targets).float().mean().item() == pytest.approx(summary["accuracy"])
    path = folder / "checkpoints" / "last.ckpt"
    module = fl.FederatedModule.load_from_checkpoint(path, model=fl.model.Mlp(8, [4], 10))
    assert torch.equal(weights(module.model), weights(model))
    with pytest.raises(
        SettingError, match=rf"needs the model, got none; .*load_module\('{path}'\), which makes it from"
    ):
        fl.FederatedModule.load_from_checkpoint(path)
    for given in (folder, path):
        module = fl.load_module(given)
        assert torch.equal(weights(module.model), weights(model))
        assert type(module.client).__name__ == "Gradient"
        assert not module.training
    other = OmegaConf.merge(config, {"model": None})
    other.model = {"_target_": f"{__name__}.never"}
    OmegaConf.save(other, folder / "config.yaml")
    with pytest.raises(SettingError, match=r"model needs a class made from torch.nn.Module, got .*never"):
        load_model(folder)
    OmegaConf.save(config, folder / "config.yaml")
    whole, values = path.read_bytes(), weights(model)[:8].numpy().tobytes()
    flipped = bytearray(whole)
    flipped[whole.index(values)] ^= 64  # torch would load it
    for damaged in (b"broken", bytes(flipped)):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"last\.ckpt cannot be read"):
            load_model(folder)
        with pytest.raises(DataError, match=r"last\.ckpt cannot be read"):
            fl.FederatedModule.load_from_checkpoint(path, model=fl.model.Mlp(8, [4], 10))
    path.write_bytes(whole)
    saved = torch.load(path, weights_only=True)
    saved["state_dict"] = {name: value.double() + 1e-12 for name, value in saved["state_dict"].items()}
    torch.save(saved, path)
    OmegaConf.save(OmegaConf.merge(config, {"trainer": {"precision": "64-true"}}), folder / "config.yaml")
    assert torch.equal(weights(load_model(folder)), weights(model).double() + 1e-12)
    path.unlink()
    with pytest.raises(DataError, match="has reached a checkpoint"):
        load_model(folder)


def test_accuracy_on_validation_samples_stands_beside_the_test_samples():
    kept = data(validation_share=0.5, server_samples=0)
    run = train(net, kept, Median(), rounds=4, evaluate_every=2)
    made = kept.reseeded(0, attacked=False)
    made.setup()
    inputs, targets = made.validation.gather(torch.arange(len(made.validation)))
    right = (run.model.eval()(inputs).argmax(1) == targets).float().mean().item()
    assert run.summary["validation_accuracy"] == pytest.approx(right, abs=1e-6)
    assert [row["round"] for row in run.metrics if "validation_accuracy" in row] == [2, 4]
    assert train(net, data(), Median(), rounds=1).summary["validation_accuracy"] is None


def test_further_callbacks_come_after_rule_and_attack():
    class Seen(pl.Callback):
        rounds = 0

        def on_train_batch_end(self, trainer, *_):
            self.rounds = trainer.global_step

    seen = Seen()
    expected = train(net, data(), Median(), Ipm(), rounds=3)
    found = train(net, data(), Median(), Ipm(), rounds=3, callbacks=[seen])
    assert seen.rounds == 3
    assert torch.equal(weights(found.model), weights(expected.model))
    assert (found.title, len(found.metrics), found.accuracy) == (expected.title, 3, expected.accuracy)
    assert len(train(net, data(), rounds=3, callbacks=seen).metrics) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 2}, "train counts rounds by rounds, got max_steps=2; give rounds in its place"),
        ({"val_check_interval": 2}, "by evaluate_every, got val_check_interval=2"),
        ({"aggregator": None}, "train takes the aggregator as rule, got aggregator=None; give rule in its place"),
        ({"adversary": None}, "train takes the adversary as attack, got adversary=None; give attack in its place"),
        ({"gradient_clip_val": 1.0}, "^gradient_clip_val is not for federated rounds, got 1.0"),
        ({"max_epochs": 3}, "^max_epochs is not for federated rounds"),
    ],
)
def test_settings_of_the_trainer_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        train(net, data(), Median(), rounds=3, **settings)


def test_a_signal_in_the_last_round_does_not_interrupt_a_run(monkeypatch):
    monkeypatch.setattr(GracefulStop, "on_train_end", lambda *_: signal.raise_signal(signal.SIGINT))
    summary = train(net, data(), rounds=2).summary
    assert (summary["status"], summary["reason"]) == ("completed", None)


@pytest.mark.parametrize(("rounds", "every"), [(4, 2), (3, 2), (5, 3), (3, 10)])
def test_a_last_evaluation_of_a_broken_model_is_a_diverged_run_whenever_it_comes(rounds, every):
    """The update of the last round is finite, the model after it gives nothing finite."""

    class Late(Ipm):
        def attack(self, honest, n_byzantine, context):
            forged = super().attack(honest, n_byzantine, context)
            return torch.full_like(forged, 3e38) if context.round.index == rounds - 1 else forged

    run = train(net, data(), None, Late(1.0), rounds=rounds, lr=1e3, evaluate_every=every)
    assert (run.status, run.diverged, run.accuracy) == ("diverged", True, None)
    assert re.match(f"round {rounds}: the model's outputs are not finite for", run.summary["reason"])
    last = run.summary["last_evaluation"]
    assert (last["round"] or 0) < rounds
    assert run.summary["confusion"] is None


@pytest.mark.parametrize("as_given", [np.array, torch.tensor, tuple])
def test_the_recalls_of_a_reference_may_come_as_an_array(as_given):
    run = train(net, data(), rounds=2, reference_recall=as_given([0.5, 1.0, 0.25]))
    assert json.loads(json.dumps(run.summary))["reference_recall"] == [0.5, 1.0, 0.25]
    assert "recall" in run.plot()


def test_a_run_that_the_trainer_stops_says_so():
    class Enough(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            trainer.should_stop = trainer.global_step == 2

    run = train(net, data(), rounds=5, callbacks=Enough())
    assert "status='stopped early', accuracy=0." in repr(run)
    summary = run.summary
    assert (summary["status"], summary["reason"]) == ("stopped early", "stopped by a callback after 2 of 5 rounds")


def test_lightnings_callbacks_and_profilers_work(tmp_path, caplog):
    best = ModelCheckpoint(tmp_path / "wanted", "best", monitor="accuracy", mode="max")
    stop = EarlyStopping("accuracy", mode="max", patience=2)
    with caplog.at_level("INFO", "pytorch_lightning.profilers.profiler"):
        run = train(net, data(), rounds=30, evaluate_every=1, callbacks=[best, stop], profiler="simple")
    accuracies = [row["accuracy"] for row in run.metrics]
    rounds = next(t for t in range(2, 31) if max(accuracies[t - 2 : t]) <= max(accuracies[: t - 2], default=-1))
    assert (run.status, len(run.metrics)) == ("stopped early", rounds)
    assert run.summary["reason"] == f"stopped by EarlyStopping after {rounds} of 30 rounds"
    kept = torch.load(tmp_path / "wanted/best.ckpt", weights_only=True)
    assert kept["global_step"] == accuracies.index(max(accuracies)) + 1
    assert "run_training_batch" in caplog.text
    with pytest.raises(SettingError, match="EarlyStopping needs a monitor that every evaluation measures, got acuracy"):
        train(net, data(), rounds=3, callbacks=EarlyStopping("acuracy"))
    (x, y), test = samples(6), samples(3, seed=1)
    some = TensorData((x, y), test, federation=Federation(6, participation=0.1, sampling="bernoulli"))
    with pytest.raises(SettingError, match="EarlyStopping needs a monitor that every evaluation measures, got loss"):
        train(net, some, rounds=3, callbacks=EarlyStopping("loss"))  # nobody may be drawn


@pytest.mark.skipif(torch.cuda.is_available() or torch.backends.mps.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there():
    with pytest.raises(SettingError, match="accelerator=gpu needs a GPU that torch finds, got none; leave it at auto"):
        train(net, data(), rounds=1, accelerator="gpu")


def test_going_on_from_a_model_leaves_the_loss_behind():
    first = train(net, data(), rounds=1, loss=fl.loss.Focal(5.0), lr=0.0).model
    fresh = net()
    fresh.load_state_dict(first.state_dict())
    losses = [train(model, data(), rounds=1).metrics[0]["loss"] for model in (first, fresh)]
    assert losses[0] == losses[1]


def test_the_rate_is_the_given_one_or_the_optimizers_own():
    def rate(**settings):
        return train(net, data(), rounds=1, **settings).metrics[0]["learning_rate"]

    assert rate() == 0.1
    assert rate(optimizer=partial(SGD, momentum=0.9)) == 0.1
    assert rate(optimizer=partial(SGD, lr=0.5)) == 0.5
    assert rate(optimizer=lambda parameters: SGD(parameters, lr=0.25)) == 0.25
    assert rate(optimizer=lambda parameters, lr: SGD(parameters, lr=lr), lr=0.75) == 0.75
    with pytest.raises(SettingError, match=r"the server has one rate, got lr=0.2 and an optimizer with lr=0.5"):
        rate(optimizer=partial(SGD, lr=0.5), lr=0.2)


def test_a_rate_may_wait_for_a_plateau_of_the_loss():
    schedule = partial(ReduceLROnPlateau, factor=0.5, patience=1, threshold=0.05, threshold_mode="abs")
    rows = train(net, data(), rounds=20, lr=8.0, schedule=schedule).metrics
    rate, best, waited = 8.0, float("inf"), 0
    for row in rows:
        assert row["learning_rate"] == rate
        best, waited = (row["loss"], 0) if row["loss"] < best - 0.05 else (best, waited + 1)
        if waited > 1:
            rate, waited = rate / 2, 0
    assert rate < 8.0


def test_several_seeds_are_a_run_each():
    class Counting(pl.Callback):
        rounds = 0

        def on_train_batch_end(self, *_):
            self.rounds += 1
            assert self.rounds <= 3

    given = {"rounds": 3, "client": LocalSgd(2, batch_size=2), "reference_recall": iter([1.0, 1.0, 1.0])}
    runs = train(net, data(), Krum(f=1), Ipm(), seed=range(2), callbacks=[Counting()], **given)
    given["reference_recall"] = [1.0] * 3
    for seed, run in enumerate(runs):
        alone = train(net, data(), Krum(f=1), Ipm(), seed=seed, **given)
        assert torch.equal(weights(run.model), weights(alone.model))
        assert run.summary["mrd"] == alone.summary["mrd"]
    (only,) = train(net, data(), rounds=1, seed=[5])
    assert only.config["seed"] == 5
    with pytest.raises(SettingError, match="a seed or several, got none"):
        train(net, data(), seed=[])
    with pytest.raises(SettingError, match="a logger records one run, got 2 seeds"):
        train(net, data(), seed=[0, 1], logger=True)


def test_ctrl_c_ends_the_seeds():
    class Stop(pl.Callback):
        def on_train_batch_end(self, *_):
            signal.raise_signal(signal.SIGINT)

    (run,) = train(net, data(), rounds=5, seed=[0, 1], callbacks=[Stop()])
    assert (run.status, len(run.metrics)) == ("interrupted", 1)


def test_a_saved_run_is_read_as_it_was(tmp_path):
    run = train(net, data(), Krum(f=1), Ipm(), rounds=4, evaluate_every=2)
    train(net, data(), Median(), rounds=1).save(tmp_path / "wanted")
    run.save(tmp_path / "wanted")
    found = SavedRun.read(tmp_path / "wanted")
    assert (found.config, found.metrics, found.clients) == (run.config, run.metrics, run.clients)
    assert (found.weights, found.classes, found.status) == (run.weights, None, "completed")
    assert json.loads((tmp_path / "wanted" / "summary.json").read_text()) == json.loads(json.dumps(run.summary))
    assert {"report.html", "recall.png", "weights.png"} <= {path.name for path in (tmp_path / "wanted").iterdir()}
    train(net, data(), Median(), rounds=1).save(tmp_path / "wanted")
    assert not (tmp_path / "wanted" / "weights.csv").exists()
    assert not (tmp_path / "wanted" / "weights.png").exists()
    (tmp_path / "wanted" / "checkpoints").mkdir()
    (tmp_path / "wanted" / "checkpoints" / "last.ckpt").touch()
    with pytest.raises(SettingError, match=r"save needs a folder without a checkpoint, got .*wanted; choose another"):
        run.save(tmp_path / "wanted")


@pytest.mark.parametrize(("precision", "bits"), [("32-true", torch.int32), ("64-true", torch.int64)])
@pytest.mark.parametrize("model", [net, net()], ids=["made", "given"])
def test_a_twin_starts_one_unit_in_the_last_place_away(model, precision, bits):
    """A rate of 0 leaves the initial parameters; the last place is that in which the round computes."""
    start = partial(train, model, data(n_byzantine=0), rounds=1, lr=0.0, precision=precision)
    plain, twin, again, other = (weights(start(twin=number).model).view(bits) for number in (None, 1, 1, 2))
    assert set((twin - plain).abs().tolist()) == {1}
    assert torch.equal(twin, again)
    assert not torch.equal(twin, other)


def test_a_twin_says_so():
    assert train(net, data(n_byzantine=0), rounds=1, twin=3).config["twin"] == 3
    with pytest.raises(SettingError, match="twin must be a whole number of at least 1, got 0"):
        train(net, data(), rounds=1, twin=0)
