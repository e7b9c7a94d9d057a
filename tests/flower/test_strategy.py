"""The strategy, with nodes that are functions: honest ones, liars, and a server that is stopped."""

import copy
import io
import random
import re
import signal
from dataclasses import replace
from functools import partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.optim import SGD

pytest.importorskip("flwr", reason='needs flwr (pip install "lightning-fl[flower]")')

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

import lightning_fl as fl
from lightning_fl import files
from lightning_fl.audit.kept import kept_rounds
from lightning_fl.contract import conf, world
from lightning_fl.errors import DataError, DivergedError, SettingError
from lightning_fl.flower import RobustStrategy
from lightning_fl.flower.strategy import FILE
from lightning_fl.round import Round
from tests import training
from tests.callback.test_round_checkpoint import Command
from tests.flower.grid import FakeGrid
from tests.holding import elsewhere
from tests.starting import Started

ROOT = Path(__file__).resolve().parents[2]
DRAW = torch.Generator().manual_seed(0)
MOVES = torch.randn(7, 8, generator=DRAW)  # what each of seven clients subtracts from the model
START = {"layer.weight": torch.randn(2, 3, generator=DRAW), "layer.bias": torch.randn(2, generator=DRAW)}


def client(move, claim=5, factor=1.0):
    """A node that moves the model by a vector, ``factor`` times as far in each further round."""

    def answer(message):
        if message.metadata.message_type == "evaluate":
            return RecordDict({"metrics": MetricRecord({"accuracy": float(move[0]), "num-examples": claim})})
        model = message.content["arrays"].to_torch_state_dict()
        number = message.content["config"]["server-round"]
        changes = (move * factor**number).split([value.numel() for value in model.values()])
        model = {
            name: value - change.reshape(value.shape)
            for (name, value), change in zip(model.items(), changes, strict=True)
        }
        loss = MetricRecord({"loss": float(number), "num-examples": claim})
        return RecordDict({"arrays": ArrayRecord(model), "metrics": loss})

    return answer


def honest(n=7):
    return {100 + i: client(MOVES[i]) for i in range(n)}


def run(strategy, nodes, rounds=1, order=list, start=START, **settings):
    return strategy.start(FakeGrid(nodes, order), ArrayRecord(start), rounds, **settings)


def flat(result):
    return torch.cat([value.flatten() for value in result.arrays.to_torch_state_dict().values()])


BEGIN = torch.cat([value.flatten() for value in START.values()])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (fl.aggregator.Average(), MOVES.mean(0)),
        (fl.aggregator.Krum(f=1), fl.aggregator.Krum(f=1)(MOVES)),
        (fl.aggregator.TrimmedMean(f=2), MOVES.sort(0).values[2:5].mean(0)),
        ("median", MOVES.median(0).values),
    ],
)
def test_the_model_moves_by_what_the_rule_makes_of_the_differences(rule, expected):
    result = run(RobustStrategy(rule), honest())
    assert list(result.arrays) == list(START)
    torch.testing.assert_close(flat(result), BEGIN - expected)


def test_a_misspelt_setting_is_refused():
    for setting, meant in [("foldr", "; did you mean folder?"), ("fraction_trian", "; did you mean fraction_train?")]:
        with pytest.raises(SettingError, match=re.escape(f"RobustStrategy has no setting {setting}{meant}")):
            RobustStrategy("krum", f=1, **{setting: 1})


def test_a_rule_by_name_is_the_rule():
    for name, rule in [("krum", fl.aggregator.Krum(f=2)), ("nnm_trimmed_mean", None)]:
        rule = rule or conf.make("aggregator", name, f=2)
        ours, theirs = run(RobustStrategy(name, f=2), honest()), run(RobustStrategy(rule), honest())
        assert torch.equal(flat(ours), flat(theirs))


def test_updates_are_in_units_of_the_clients_rate_and_the_server_steps_as_it_wants():
    """FedAvg in any unit; a server of its own subtracts its rate times the sum of gradients."""
    result = run(RobustStrategy("average", learning_rate=0.1), honest())
    torch.testing.assert_close(flat(result), BEGIN - MOVES.mean(0))
    result = run(RobustStrategy("average", partial(SGD, lr=0.5), learning_rate=0.1), honest())
    torch.testing.assert_close(flat(result), BEGIN - 5 * MOVES.mean(0))
    assert result.train_metrics_clientapp[1]["round/update_norm"] == pytest.approx(10 * MOVES.mean(0).norm().item())


def test_a_server_with_memory_steps_by_it():
    """Momentum 0.5 on constant moves g: g, then 1.5 g, then 1.75 g."""
    result = run(RobustStrategy("average", partial(SGD, lr=1.0, momentum=0.5)), honest(), rounds=3)
    torch.testing.assert_close(flat(result), BEGIN - 4.25 * MOVES.mean(0))


def test_metrics_say_whom_the_rule_trusted():
    result = run(RobustStrategy(fl.aggregator.Krum(f=1)), honest())
    metrics = result.train_metrics_clientapp[1]
    chosen = 100 + int((fl.aggregator.Krum(f=1)(MOVES) == MOVES).all(1).nonzero())
    assert {key: value for key, value in metrics.items() if key.startswith("trust/")} == {
        f"trust/{node}": float(node == chosen) for node in honest()
    }
    assert metrics["loss"] == 1.0
    assert (metrics["round/updates"], metrics["round/absent"], metrics["round/skipped"]) == (7, 0, 0)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(MOVES[:, 0].median().item())
    coordinates = run(RobustStrategy("median"), honest()).train_metrics_clientapp[1]
    assert not [key for key in coordinates if key.startswith("trust/")]


def test_who_was_trusted_is_logged(caplog):
    nodes = honest() | {50: client(torch.full((8,), torch.nan))}
    with caplog.at_level("INFO", "flwr"):
        run(RobustStrategy("average"), nodes)
    assert "trust: 50 0.000, 100 0.143, 101 0.143" in caplog.text
    assert "node 50 counts as Byzantine: its numbers are not all finite" in caplog.text


NAN = torch.full((8,), torch.nan)


def altered(alter):
    """A node whose arrays are altered before it sends them."""

    def answer(message):
        content = client(MOVES[0])(message)
        if message.metadata.message_type == "evaluate":
            return content
        arrays = dict(content["arrays"])
        alter(arrays)
        return RecordDict({"arrays": ArrayRecord(arrays), "metrics": content["metrics"]})

    return answer


def rename(arrays):
    arrays["layer.wait"] = arrays.pop("layer.weight")


def forget(arrays):
    del arrays["layer.bias"]


def reshaped(message):
    arrays = {"layer.weight": np.zeros((3, 2), np.float32), "layer.bias": np.zeros(2, np.float32)}
    arrays = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})


def two_answers(message):
    return [client(MOVES[0])(message), client(MOVES[1])(message)]


def empty(message):
    return RecordDict()


HOSTILE = {
    "nan": client(NAN),
    "inf": client(torch.full((8,), torch.inf)),
    "renamed": altered(rename),
    "missing": altered(forget),
    "reshaped": reshaped,
    "two answers": two_answers,
    "empty": empty,
}


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_reply_that_is_no_model_costs_that_client_and_never_the_round(lie):
    nodes = honest() | {103: HOSTILE[lie]}
    others = MOVES[[0, 1, 2, 4, 5, 6]]
    result = run(RobustStrategy("average"), nodes)
    torch.testing.assert_close(flat(result), BEGIN - others.mean(0))
    metrics = result.train_metrics_clientapp[1]
    assert metrics["refused/103"] == 1
    assert metrics["trust/103"] == 0
    assert (metrics["round/updates"], metrics["round/skipped"]) == (7, 0)
    # It is one of the rule's f: of the other values f - 1 are cut at either end.
    result = run(RobustStrategy(fl.aggregator.TrimmedMean(f=2)), nodes)
    torch.testing.assert_close(flat(result), BEGIN - others.sort(0).values[1:-1].mean(0))


def test_one_such_reply_cannot_make_the_others_too_few():
    """Krum with f = 2 takes at least 5 updates: four models and a lie are enough, four models and nothing are not."""
    strategy = RobustStrategy(fl.aggregator.Krum(f=2))
    assert strategy.min_train_nodes == strategy.min_available_nodes == 5
    result = run(strategy, honest(4) | {50: client(NAN)})
    assert result.train_metrics_clientapp[1]["round/skipped"] == 0
    result = run(RobustStrategy(fl.aggregator.Krum(f=2)), honest(4) | {50: lambda message: None})
    assert result.train_metrics_clientapp[1]["round/skipped"] == 1
    assert torch.equal(flat(result), BEGIN)


def test_errors_and_silence_are_absences():
    failing = {200: lambda message: Error(code=3, reason="out of memory"), 201: lambda message: None}
    result = run(RobustStrategy("average"), honest() | failing)
    torch.testing.assert_close(flat(result), BEGIN - MOVES.mean(0))
    assert result.train_metrics_clientapp[1]["round/absent"] == 2


def test_of_evaluations_copies_count_once_and_different_ones_cost_the_node():
    def copies(message):
        return [client(MOVES[2])(message)] * 2

    expected = MOVES[:3, 0].median().item()
    for lie in (two_answers, lambda message: two_answers(message)[::-1]):
        result = run(RobustStrategy("average"), honest(2) | {50: lie, 200: copies})
        assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(expected)


def test_strangers_and_late_replies_measure_nothing():
    """Node 999 was not asked; node 101 sends the first round's evaluation again in the second, and nothing else."""
    kept = []

    def alter(replies):
        asked = [reply for reply in replies if reply.metadata.message_type == "evaluate"]
        for reply in asked:
            if reply.metadata.src_node_id == 101:
                kept.append(reply)
        stranger = [client(MOVES[5])(reply) for reply in asked[:1]]
        to_it = Message(RecordDict(), dst_node_id=999, message_type="evaluate", group_id="round 1")
        late = [kept[0] if reply is kept[-1] else reply for reply in replies] if kept else replies
        return late + [Message(content, reply_to=to_it) for content in stranger]

    found = run(RobustStrategy("average"), honest(3), 2, alter).evaluate_metrics_clientapp
    assert found[1]["accuracy"] == pytest.approx(MOVES[:3, 0].median().item())
    assert found[2]["accuracy"] == pytest.approx(MOVES[[0, 2], 0].mean().item())


def test_a_late_reply_is_left_out():
    """Node 103 answers the first round's message in the second round, and then both at once."""
    kept = []

    def late(message):
        if message.metadata.message_type == "evaluate":
            return None
        kept.append(message)
        return fl_reply(kept[0], MOVES[3]) if len(kept) == 2 else client(MOVES[3])(message)

    def fl_reply(message, move):
        return Message(client(move)(message), reply_to=message)

    result = run(RobustStrategy("average"), honest() | {103: late}, rounds=2)
    others = MOVES[[0, 1, 2, 4, 5, 6]]
    torch.testing.assert_close(flat(result), BEGIN - MOVES.mean(0) - others.mean(0))
    assert result.train_metrics_clientapp[2]["round/absent"] == 1


@pytest.mark.parametrize("rule", ["average", "krum", "nnm_krum", "bucketing_krum", "geometric_median", "trimmed_mean"])
def test_the_order_of_arrival_changes_no_bit(rule):
    def same(n_rounds=2):
        f = None if rule in ("average", "geometric_median") else 1
        nodes = honest() | {50: client(NAN), 60: two_answers, 70: client(MOVES[2])}  # 70 ties with 102
        results = []
        for seed in range(3):
            shuffled = random.Random(seed)

            def order(replies, shuffled=shuffled):
                return shuffled.sample(replies, len(replies))

            results.append(run(RobustStrategy(rule, f=f), nodes, n_rounds, order))
        return results

    first, *others = same()
    for other in others:
        assert all(first.arrays[name].data == other.arrays[name].data for name in START)
        assert first.train_metrics_clientapp == other.train_metrics_clientapp


def test_ties_go_to_the_lowest_node():
    pair = {30: client(MOVES[0]), 20: client(MOVES[0]), 10: client(MOVES[1]), 40: client(MOVES[2])}
    for order in permutations(range(4)):
        strategy = RobustStrategy(fl.aggregator.Krum(f=1))
        result = run(strategy, pair, order=lambda replies, order=order: [replies[i] for i in order])
        assert result.train_metrics_clientapp[1]["trust/20"] == 1


def test_claimed_samples_are_ignored_or_capped():
    nodes = {1: client(MOVES[0], 10), 2: client(MOVES[1], 10**12), 3: client(MOVES[2], 20)}
    result = run(RobustStrategy("average"), nodes)
    torch.testing.assert_close(flat(result), BEGIN - MOVES[:3].mean(0))
    result = run(RobustStrategy("average", most_examples=30), nodes)
    torch.testing.assert_close(flat(result), BEGIN - (MOVES[0] + 3 * MOVES[1] + 2 * MOVES[2]) / 6)
    nobody = {i: client(MOVES[i], 0) for i in range(3)}
    result = run(RobustStrategy("average", most_examples=30), nobody)
    assert result.train_metrics_clientapp[1]["round/skipped"] == 1


def test_arrays_that_hold_no_parameters_stay_as_they_are():
    start = START | {"steps": torch.tensor([3, 4]), "half": torch.ones(2, dtype=torch.float16)}

    def answer(message):
        model = message.content["arrays"].to_torch_state_dict()
        model = {name: value.double() - 1 if value.is_floating_point() else value + 9 for name, value in model.items()}
        return RecordDict({"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": 1})})

    result = run(RobustStrategy("median"), {1: answer, 2: answer}, start=start).arrays.to_torch_state_dict()
    assert result["steps"].tolist() == [3, 4]
    assert (result["half"].dtype, result["half"].tolist()) == (torch.float16, [0, 0])
    torch.testing.assert_close(result["layer.bias"], START["layer.bias"] - 1)


NORMALISED = START | {
    "norm.running_mean": torch.zeros(2),
    "norm.running_var": torch.ones(2, dtype=torch.float16),
    "norm.num_batches_tracked": torch.tensor(0),
}


def measuring(move, mean, variance):
    """A node that moves the parameters by a vector, and measures these statistics."""

    def answer(message):
        if message.metadata.message_type == "evaluate":
            return None
        model = message.content["arrays"].to_torch_state_dict()
        changes = move.split([6, 2])
        for name, change in zip(START, changes, strict=True):
            model[name] = model[name] - change.reshape(model[name].shape)
        model["norm.running_mean"] = torch.full((2,), float(mean))
        model["norm.running_var"] = torch.full((2,), float(variance))
        model["norm.num_batches_tracked"] += 2
        return RecordDict({"arrays": ArrayRecord(model), "metrics": MetricRecord({"num-examples": 5})})

    return answer


def test_running_statistics_are_no_gradients(tmp_path):
    """The rule and the server's momentum take the parameters alone; statistics become their median, and are saved."""
    measured = [(1, 1), (2, 2), (3, 3), (4, 5), (1e30, 1e4)]  # of the fifth node: a lie
    nodes = {i: measuring(MOVES[i], *statistics) for i, statistics in enumerate(measured)}

    def strategy(folder=None):
        return RobustStrategy("average", partial(SGD, lr=1.0, momentum=0.5), folder=folder)

    whole = run(strategy(), nodes, 3, start=NORMALISED)
    state = whole.arrays.to_torch_state_dict()
    assert list(state) == list(NORMALISED)
    torch.testing.assert_close(
        torch.cat([state[name].flatten() for name in START]), BEGIN - 4.25 * MOVES[:5].mean(0)
    )  # 1 + 1.5 + 1.75
    assert state["norm.running_mean"].tolist() == [3, 3]
    assert (state["norm.running_var"].dtype, state["norm.running_var"].tolist()) == (torch.float16, [3, 3])
    assert state["norm.num_batches_tracked"] == 0
    run(strategy(tmp_path), nodes, 2, start=NORMALISED)
    assert run(strategy(tmp_path), nodes, 3, start=NORMALISED).arrays == whole.arrays
    nobody = run(strategy(tmp_path), {}, 3, start=NORMALISED)
    assert nobody.arrays == whole.arrays


@pytest.mark.parametrize(("mean", "variance"), [(0, -1), (torch.nan, 1), (0, torch.inf)])
def test_statistics_that_nobody_measures_cost_the_client(mean, variance, caplog):
    nodes = {i: measuring(MOVES[i], i, i) for i in range(3)} | {3: measuring(MOVES[3], mean, variance)}
    result = run(RobustStrategy("average"), nodes, start=NORMALISED)
    assert result.train_metrics_clientapp[1]["refused/3"] == 1
    assert result.train_metrics_clientapp[1]["trust/3"] == 0
    state = result.arrays.to_torch_state_dict()
    assert state["norm.running_mean"].tolist() == state["norm.running_var"].tolist() == [1, 1]
    # A round without any reply leaves them, too.
    result = run(RobustStrategy("average"), {0: nodes[3], 1: nodes[3]}, start=NORMALISED)
    assert result.train_metrics_clientapp[1]["round/skipped"] == 1
    assert result.arrays.to_torch_state_dict()["norm.running_var"].tolist() == [1, 1]


def test_a_loss_that_is_not_finite_at_the_server_stops_the_run():
    def evaluate(number, arrays):
        return MetricRecord({"recall": float("nan"), "test_loss": float("nan") if number == 2 else 1.0})

    with pytest.raises(DivergedError, match=r"the model of round 2 has test_loss=nan; lower the rate of"):
        run(RobustStrategy("average"), honest(), 4, evaluate_fn=evaluate)


# Rounds that are skipped


def boba(f=2):
    """BOBA on the small world of three classes: 0 <= f <= n - 3."""
    return RobustStrategy(
        fl.aggregator.Boba(f=f), learning_rate=0.1, model=world.model(), samples=world.samples(), folder=None
    )


def trained(data_seed, n):
    """Nodes that take one gradient step at rate 0.1 on a mixture of two classes."""
    data, found = world.samples(per_class=8, seed=data_seed), {}
    for i in range(n):
        index = torch.cat([torch.arange(8 * z, 8 * z + 4) for z in (i % 3, (i + 1 + i // 3) % 3)])

        def answer(message, index=index):
            model = world.model()
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            torch.nn.functional.cross_entropy(model(data.inputs[index]), data.targets[index]).backward()
            arrays = {name: value.detach() - 0.1 * value.grad for name, value in model.named_parameters()}
            return RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": len(index)})})

        found[i] = answer
    return found


def test_boba_skips_a_round_that_brings_too_few_and_goes_on(caplog):
    """f = 2 needs 5 updates of 3 classes; in the second round three of seven nodes are silent."""
    strategy, nodes = boba(), trained(1, 7)
    assert strategy.min_train_nodes == 5
    start = world.model().state_dict()

    def silent(answer, node):
        def sometimes(message):
            if message.metadata.message_type == "evaluate":
                return None
            return None if message.content["config"]["server-round"] == 2 and node < 3 else answer(message)

        return sometimes

    seen = {}
    result = run(
        strategy,
        {node: silent(answer, node) for node, answer in nodes.items()},
        3,
        start=start,
        evaluate_fn=lambda number, arrays: seen.update({number: arrays["weight"].data}),
    )
    assert [result.train_metrics_clientapp[k]["round/skipped"] for k in (1, 2, 3)] == [0, 1, 0]
    assert seen[0] != seen[1] == seen[2] != seen[3]
    two = run(boba(), {node: silent(answer, 9) for node, answer in nodes.items()}, 1, start=start)
    assert two.arrays["weight"].data == seen[1]


def test_a_skipped_round_leaves_the_rules_memory_alone():
    strategy = RobustStrategy("foolsgold", min_train_nodes=2, min_available_nodes=2)
    run(strategy, honest())
    before = copy.deepcopy(strategy.rule.state_dict())

    def then_broken(node):
        return lambda message: (client(NAN) if message.metadata.group_id == "round 2" else node)(message)

    result = run(strategy, {number: then_broken(node) for number, node in honest().items()}, 2)
    assert result.train_metrics_clientapp[2]["round/skipped"] == 1
    after = strategy.rule.state_dict()
    assert before.keys() == after.keys()
    assert set(before["history"]) == set(honest())
    assert all(torch.equal(before["history"][node], after["history"][node]) for node in before["history"])


def test_a_step_that_leaves_no_model_is_not_taken(caplog):
    strategy = RobustStrategy("average", partial(SGD, lr=1e38, momentum=0.9))
    result = run(strategy, {node: client(1e3 * move) for node, move in enumerate(MOVES)}, 2)
    assert [metrics["round/skipped"] for metrics in result.train_metrics_clientapp.values()] == [1, 1]
    assert torch.equal(flat(result), BEGIN)
    assert not any(value.isnan().any() for state in strategy._optimizer.state.values() for value in state.values())
    assert "round 2 is skipped: the server's step would leave NaN or inf in the model; lower its rate." in caplog.text


def test_a_model_that_is_not_finite_is_no_start():
    start = START | {"layer.bias": torch.tensor([torch.nan, 0.0])}
    with pytest.raises(SettingError, match=r"must be finite, got NaN or inf in layer.bias"):
        run(RobustStrategy("average"), honest(), start=start)


def test_all_lies_are_no_round(caplog):
    result = run(RobustStrategy("average"), dict.fromkeys(honest(), client(NAN)))
    assert torch.equal(flat(result), BEGIN)
    assert result.train_metrics_clientapp[1]["round/skipped"] == 1
    assert "skipped: no reply of 7 counts: its numbers are not all finite; if clients diverge, lower" in caplog.text


# The server's samples


def test_boba_is_the_boba_of_a_run_here():
    """Nodes that compute what our clients compute: the same model after three rounds, to rounding."""
    data = fl.TensorData(
        (world.samples().inputs, world.samples().targets),
        (world.samples().inputs, world.samples().targets),
        partition=fl.partition.Dirichlet(alpha=1.0),
        n_clients=6,
        server_samples=4,
    )
    module = fl.FederatedModule(world.model(), fl.client.LocalSgd(steps=2), partial(SGD, lr=0.1))
    with training.quiet():
        trainer = pl.Trainer(
            max_steps=3,
            callbacks=[fl.aggregator.Boba(f=1)],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            limit_val_batches=0,
        )
        trainer.fit(module, datamodule=data)

    def answer(message, index):
        model = world.model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = data.train.gather(index)
        for _ in range(2):
            model.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
        metrics = MetricRecord({"num-examples": len(index)})
        return RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})

    server = data.server.samples
    drawn = torch.cat(list(data.server.indices))
    strategy = RobustStrategy(
        fl.aggregator.Boba(f=1),
        learning_rate=0.1,
        model=world.model(),
        samples=fl.Samples(*server.gather(drawn), 3),
        client=fl.client.LocalSgd(steps=2),
    )
    nodes = {i: partial(answer, index=index) for i, index in enumerate(data.clients.indices)}
    result = run(strategy, nodes, 3, start=world.model().state_dict())
    for name, value in result.arrays.to_torch_state_dict().items():
        torch.testing.assert_close(value, module.model.state_dict()[name].cpu(), rtol=1e-4, atol=1e-6)
    assert result.train_metrics_clientapp[3]["rule/accepted"] >= 5


def at_server(rule, server=None, client=None, samples=None, model=None, **settings):
    """A strategy whose server computes, too."""
    return RobustStrategy(
        rule,
        server,
        learning_rate=0.1,
        model=world.model() if model is None else model,
        samples=world.samples() if samples is None else samples,
        client=fl.client.LocalSgd(steps=2) if client is None else client,
        **settings,
    )


def around_its_model(strategy, rounds=1):
    start = world.model().state_dict()
    d = sum(value.numel() for value in start.values())
    moves = 0.01 * torch.randn(7, d, generator=torch.Generator().manual_seed(1))
    return run(strategy, {100 + i: client(move) for i, move in enumerate(moves)}, rounds, start=start)


def test_the_server_s_clients_train_at_the_clients_rate_whatever_the_server_s():
    found = [around_its_model(at_server("server_only", server)) for server in (None, partial(SGD, lr=1.0))]
    norms = [result.train_metrics_clientapp[1]["round/update_norm"] for result in found]
    assert norms[0] == norms[1] > 0
    own = fl.client.LocalSgd(steps=2, learning_rate=0.3)
    assert at_server("server_only", client=own).client.learning_rate == own.learning_rate == 0.3
    wrapped = at_server("server_only", client=fl.client.TopK(fl.client.LocalSgd(steps=2), ratio=0.5)).client
    assert wrapped.upload_rate(Round(0, 1.0, 0)) == 0.1


class Rectified(torch.nn.Linear):
    """Another model with parameters of the same names and shapes."""

    def forward(self, inputs):
        return super().forward(inputs).relu()


def test_what_the_server_computes_with_is_part_of_a_saved_run(tmp_path):
    around_its_model(at_server("server_only", folder=tmp_path))
    for changes, what in [
        ({"client": fl.client.Gradient()}, "client: LocalSgd.*, got Gradient"),
        ({"samples": world.samples(seed=5)}, "samples: "),
        ({"samples": replace(world.samples(), mean=(0.5,))}, "samples: "),
        ({"model": Rectified(2, 3)}, "model: Linear.*, got Rectified"),
    ]:
        with pytest.raises(SettingError, match=f"with other settings, {what}"):
            around_its_model(at_server("server_only", folder=tmp_path, **changes), 2)


def test_any_node_may_be_the_trusted_one():
    found = run(RobustStrategy(fl.aggregator.Monna(f=1, trusted=103)), honest()).train_metrics_clientapp[1]
    assert found["round/skipped"] == 0
    assert found["trust/103"] > 0


def test_the_server_s_model_is_a_copy_that_trains():
    net = world.model().eval()
    strategy = RobustStrategy("boba", f=1, model=net, samples=world.samples())
    assert strategy.model.training
    assert not net.training


@pytest.mark.slow
def test_every_rule_of_ours_serves_and_is_saved(tmp_path):
    for name in conf.names("aggregator"):
        rule = conf.make("aggregator", name, f=1)
        folder = tmp_path / name
        strategy = RobustStrategy(rule, learning_rate=0.1, model=world.model(), samples=world.samples(), folder=folder)
        moves = world.honest_updates(max(12, strategy.min_train_nodes)) * 0.1
        nodes = {node: client(move) for node, move in enumerate(moves)}
        result = run(strategy, nodes, 2, start=world.model().state_dict())
        moved = result.arrays.to_torch_state_dict()
        assert all(value.isfinite().all() for value in moved.values()), name
        assert [metrics["round/skipped"] for metrics in result.train_metrics_clientapp.values()] == [0, 0], name
        assert not torch.equal(moved["weight"], world.model().weight), name
        assert files.load(folder / FILE)["round"] == 2, name


# A server that is stopped


class Killed(Exception):  # noqa: N818
    pass


def kill_at(number):
    def evaluate(at, arrays):
        if at == number:
            raise Killed
        return MetricRecord({"at": np.float64(at), "each": [np.float64(at)]})

    return evaluate


@pytest.mark.parametrize(
    ("rule", "server"),
    [
        ("foolsgold", None),
        ("centred_clipping", partial(SGD, lr=1.0, momentum=0.9)),
        ("average", fl.server.FedAdam),
    ],
)
def test_a_killed_server_goes_on_as_if_it_never_stopped(rule, server, tmp_path):
    nodes = {node: client(MOVES[i], factor=1.1 + i / 10) for i, node in enumerate(honest())}
    whole = run(RobustStrategy(rule, server), nodes, 5, evaluate_fn=kill_at(None))
    with pytest.raises(Killed):
        run(RobustStrategy(rule, server, folder=tmp_path), nodes, 5, evaluate_fn=kill_at(3))
    (tmp_path / f"{FILE}.part").write_bytes(b"half of a file")
    unused = {name: value + 1 for name, value in START.items()}
    resumed = run(RobustStrategy(rule, server, folder=tmp_path), nodes, 5, start=unused, evaluate_fn=kill_at(None))
    assert all(whole.arrays[name].data == resumed.arrays[name].data for name in START)
    assert whole.train_metrics_clientapp == resumed.train_metrics_clientapp
    assert whole.evaluate_metrics_clientapp == resumed.evaluate_metrics_clientapp
    assert whole.evaluate_metrics_serverapp == resumed.evaluate_metrics_serverapp
    # Whoever asks for no further round gets the result as it is.
    again = run(RobustStrategy(rule, server, folder=tmp_path), nodes, 5)
    assert all(whole.arrays[name].data == again.arrays[name].data for name in START)
    assert again.train_metrics_clientapp == whole.train_metrics_clientapp


@pytest.mark.parametrize("round_", [1, 3])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_server_killed_while_clients_work_loses_nothing(kind, round_, tmp_path):
    """Neither between the two saves of a round, nor before the first."""

    def fatal(message):
        if message.metadata.message_type == kind and message.content["config"]["server-round"] == round_:
            raise Killed
        return client(MOVES[0])(message)

    whole = run(RobustStrategy("average"), honest(), 3)
    with pytest.raises(Killed):
        run(RobustStrategy("average", folder=tmp_path), honest() | {100: fatal}, 3)
    resumed = run(RobustStrategy("average", folder=tmp_path), honest(), 3)
    assert torch.equal(flat(whole), flat(resumed))
    assert whole.train_metrics_clientapp == resumed.train_metrics_clientapp
    assert whole.evaluate_metrics_clientapp == resumed.evaluate_metrics_clientapp


def test_what_nobody_measured_is_asked_once(tmp_path):
    nodes = {100 + i: lambda message: None for i in range(3)}
    run(RobustStrategy("average", folder=tmp_path), nodes, 2)

    def nobody(message):
        raise AssertionError("asked")

    result = run(RobustStrategy("average", folder=tmp_path), dict.fromkeys(nodes, nobody), 2)
    assert result.evaluate_metrics_clientapp == {}
    assert list(result.train_metrics_clientapp) == [1, 2]


def test_fewer_rounds_than_the_folder_has_are_told(tmp_path, caplog):
    run(RobustStrategy("average", folder=tmp_path), honest(), 2)
    run(RobustStrategy("average", folder=tmp_path), honest(), 2)
    assert "more than num_rounds" not in caplog.text
    result = run(RobustStrategy("average", folder=tmp_path), honest(), 1)
    assert f"{tmp_path} has 2 rounds, more than num_rounds=1." in caplog.text
    assert list(result.train_metrics_clientapp) == [1, 2]


def test_clients_are_told_the_number_of_the_round_across_restarts(tmp_path):
    told = []

    def answer(message):
        told.append(message.content["config"]["server-round"])
        return client(MOVES[0])(message)

    for rounds in (2, 3):
        run(RobustStrategy("average", folder=tmp_path), {1: answer, 2: client(MOVES[1])}, rounds)
    assert told == [1, 1, 2, 2, 3, 3]  # training and evaluation


def test_a_rule_knows_round_rate_and_seed_across_restarts(tmp_path):
    """What its draws depend on; before the first round of each process it is asked about random updates."""

    class Knowing(fl.aggregator.Average):
        def aggregate(self, updates, server):
            known.append(server.round)
            return super().aggregate(updates, server)

    known = []
    for rounds in (2, 3):
        run(RobustStrategy(Knowing(), partial(SGD, lr=0.5), seed=7, folder=tmp_path), honest(), rounds)
    assert known == [fl.Round(index, 0.5, 7) for index in (0, 0, 1, 0, 2)]


@pytest.mark.slow
def test_a_process_that_is_killed_goes_on(tmp_path):
    """The system's own kill, in the middle of the third round's evaluation."""
    code = f"""
import os, signal
import lightning_fl, tests.flower.conftest
from tests.flower.test_strategy import *
fatal = lambda number, arrays: os.kill(os.getpid(), signal.SIGKILL) if number == 3 else None
nodes = {{node: client(MOVES[i], factor=1.1 + i / 10) for i, node in enumerate(honest())}}
run(RobustStrategy("foolsgold", folder={str(tmp_path)!r}), nodes, 5, evaluate_fn=fatal)
"""
    process = Started("-c", code, cwd=ROOT)
    printed = process.communicate()
    assert process.returncode == -signal.SIGKILL, printed
    nodes = {node: client(MOVES[i], factor=1.1 + i / 10) for i, node in enumerate(honest())}
    whole, resumed = (flat(run(RobustStrategy("foolsgold", folder=folder), nodes, 5)) for folder in (None, tmp_path))
    assert torch.equal(resumed, whole)


def test_a_damaged_file_is_named(tmp_path):
    run(RobustStrategy("average", folder=tmp_path), honest())
    file = tmp_path / FILE
    whole, model = file.read_bytes(), torch.load(file, weights_only=True)["parameters"][0].numpy().tobytes()
    flipped = bytearray(whole)
    flipped[whole.index(model)] ^= 64  # torch would load it
    code = io.BytesIO()
    torch.save(torch.load(file, weights_only=True) | {"memory": Command()}, code)
    for damaged in (whole[:300], bytes(flipped), code.getvalue()):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"strategy.pt cannot be read: .*, or move it away to begin again"):
            run(RobustStrategy("average", folder=tmp_path), honest(), 2)


def test_what_could_not_be_read_back_is_said_in_the_first_round(tmp_path):
    class Careless(fl.aggregator.Average):
        def state_dict(self):
            return {"seen": np.ones(2)}

    with pytest.raises(DataError, match=r"strategy.pt cannot be read: it holds more than tensors and plain"):
        run(RobustStrategy(Careless(), folder=tmp_path), honest(), 2)


def test_a_second_start_begins_anew():
    """Neither the optimizer's momentum nor the rule's memory nor the first run's metrics are left."""
    strategy = RobustStrategy("foolsgold", partial(SGD, lr=1.0, momentum=0.9))
    first, second = (run(strategy, honest(), rounds) for rounds in (3, 2))
    torch.testing.assert_close(flat(second), flat(run(RobustStrategy("foolsgold", strategy.make_server), honest(), 2)))
    assert not torch.equal(flat(first), flat(second))
    assert list(second.train_metrics_clientapp) == [1, 2]


def test_a_folder_of_another_run_or_in_use_is_refused(tmp_path):
    run(RobustStrategy("average", folder=tmp_path), honest())
    for strategy, what in [
        (RobustStrategy("median", folder=tmp_path), "with other settings, rule: .*Average.*, got .*Median"),
        (RobustStrategy("average", fl.server.FedAdam, folder=tmp_path), "server: .*SGD.*, got .*FedAdam"),
        (RobustStrategy("average", partial(SGD, lr=0.5), folder=tmp_path), "server: .*'lr': 1.0.*, got .*'lr': 0.5"),
        (
            RobustStrategy("average", partial(SGD, lr=1.0), learning_rate=0.5, folder=tmp_path),
            "learning_rate: 1.0, got 0.5",
        ),
        (RobustStrategy("average", seed=3, folder=tmp_path), "seed: 0, got 3"),
        (RobustStrategy("average", most_examples=9, folder=tmp_path), "most_examples: None, got 9"),
    ]:
        with pytest.raises(SettingError, match=what):
            run(strategy, honest(), 2)
    with pytest.raises(SettingError, match="other settings, arrays: "):
        run(RobustStrategy("average", folder=tmp_path), honest(), 2, start={"w": torch.zeros(2)})
    with elsewhere(tmp_path), pytest.raises(SettingError, match="is in use by another process; wait until it has"):
        run(RobustStrategy("average", folder=tmp_path), honest(), 2)


# Settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RobustStrategy("krumm", f=1), "there is no aggregator krumm; did you mean krum"),
        (lambda: RobustStrategy("median", f=1), "median has no f, got f=1; leave it out"),
        (lambda: RobustStrategy("krum"), "krum needs f, how many Byzantine clients it tolerates, got none; give f"),
        (lambda: RobustStrategy(fl.aggregator.Krum(f=1), f=1), "Krum has its own f, got f=1 as well; leave it out"),
        (lambda: RobustStrategy("krum", f=-1), "f must be a whole number of at least 0, got -1"),
        (lambda: RobustStrategy("krum", f="a"), "f must be a whole number of at least 0, got 'a'"),
        (lambda: RobustStrategy("krum", "sgd", f=1), "server must be a class such as torch.optim.SGD, got 'sgd'"),
        (lambda: RobustStrategy("boba", f=1), "Boba needs server data, got none; give model, samples and client"),
        (
            lambda: RobustStrategy(fl.aggregator.Boba(f=1, p_min=1.0), model=world.model(), samples=world.samples()),
            "boba needs p_min <= 0",
        ),
        (
            lambda: RobustStrategy("krum", f=2, min_train_nodes=4),
            "Krum needs at least 5 updates, got min_train_nodes=4",
        ),
        (
            lambda: RobustStrategy("average", learning_rate=0),
            "learning_rate must be a number above 0 and finite, got 0",
        ),
        (lambda: RobustStrategy("average", learning_rate="0.1"), "learning_rate must be a number above 0 and finite"),
        (lambda: RobustStrategy("average", most_examples=0), "most_examples must be a whole number of at least 1"),
        (lambda: RobustStrategy(fl.aggregator.Krum), r"rule must be an Aggregator such .*the class Krum; write Krum\("),
        (
            lambda: RobustStrategy("average", model=torch.nn.Linear),
            "model must be a Module such as .*the class Linear; write",
        ),
        (lambda: RobustStrategy("average", client=fl.client.Gradient), "client must be a Client such as .*write Grad"),
        (lambda: RobustStrategy("boba", f=1, samples=(1, 2)), "samples must be a Samples such as .*, got tuple"),
        (lambda: RobustStrategy("boba", f=1, samples=world.samples()), "trains a model on its samples, got none"),
        (
            lambda: RobustStrategy(
                "boba", f=1, model=world.model(), samples=fl.Samples(torch.zeros(1, 2), torch.ones(1).long(), 3)
            ),
            "needs samples of each class, got none of class 0",
        ),
        (lambda: RobustStrategy("krum", partial(SGD, lr=-1), f=1), "ValueError: Invalid learning rate: -1"),
        (lambda: at_server(fl.aggregator.Boba(f=1), client=fl.client.Rsa()), "a client that the server can run, too"),
        (
            lambda: at_server(fl.aggregator.Boba(f=1), model=torch.nn.Linear(5, 3)),
            r"Linear does not take inputs of shape \(2,\)",
        ),
        (
            lambda: at_server(fl.aggregator.Boba(f=1), model=torch.nn.Linear(2, 4)),
            r"the data have 3 classes, Linear gives outputs of shape \(4,\)",
        ),
        (
            lambda: at_server(
                fl.aggregator.Boba(f=1), model=torch.nn.Sequential(torch.nn.BatchNorm1d(2), world.model())
            ),
            "keeps batch statistics in 0",
        ),
    ],
)
def test_settings_that_fit_nothing_are_refused_at_once(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_what_a_rule_lacks_is_said_before_anybody_works():
    def nobody(message):
        raise AssertionError("asked")

    nodes = dict.fromkeys(range(9), nobody)
    with pytest.raises(
        SettingError,
        match=r"must be the trainable parameters of Linear in their order, here \('weight', .*, got \('layer",
    ):
        run(RobustStrategy("boba", f=1, model=world.model(), samples=world.samples()), nodes)
    with pytest.raises(SettingError, match="needs arrays of floating-point numbers"):
        run(RobustStrategy("average"), nodes, start={"n": torch.arange(3)})


def test_a_rule_with_a_hook_that_nobody_calls_is_refused():
    class Hooked(fl.aggregator.Average):
        def on_fit_start(self, trainer, pl_module):
            pass

    with pytest.raises(SettingError, match="RobustStrategy does not call on_fit_start of its rule, got Hooked with it"):
        RobustStrategy(Hooked())


def test_a_strategy_without_training_trains_nobody():
    strategy = RobustStrategy("average", fraction_train=0.0)
    assert strategy.configure_train(1, ArrayRecord(START), ConfigRecord(), FakeGrid(honest())) == []
    assert strategy.aggregate_train(1, []) == (None, None)


def test_what_the_readme_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"```python\n(from lightning_fl\.flower .*?)```", (ROOT / "docs/use/flower.md").read_text(), re.DOTALL
    )
    nodes = {i: client(torch.randn(8, generator=DRAW)) for i in range(8)} | {8: client(NAN)}
    names = {"grid": FakeGrid(nodes), "initial_arrays": ArrayRecord(START)}
    exec(code, names)
    assert len(names["result"].train_metrics_clientapp) == 50
    assert (tmp_path / "runs" / "flower" / FILE).exists()


def test_rounds_are_kept_for_an_audit(tmp_path):
    run(RobustStrategy("average", folder=tmp_path, keep="gram"), honest() | {50: client(NAN)}, rounds=2)
    first, second = kept_rounds(tmp_path)
    assert first.ids == second.ids == [50, *range(100, 107)]
    torch.testing.assert_close(first.updates.gram[1:, 1:], (MOVES @ MOVES.T).double(), rtol=1e-4, atol=1e-4)
    assert not first.updates.gram[0].isfinite().any()
    with pytest.raises(SettingError, match="keep='gram' needs a folder, got none"):
        RobustStrategy("average", keep="gram")


def test_whom_the_rule_rejects_again_and_again_is_asked_no_more(tmp_path, caplog):
    """Node 50 sends NaN, node 60 is too far off to have weight: both are asked for two rounds."""
    asked = []

    def watched(node, answer):
        def wrapped(message):
            asked.append((message.content["config"]["server-round"], message.metadata.message_type, node))
            return answer(message)

        return wrapped

    far = client(torch.full((8,), 50.0))
    nodes = {node: watched(node, answer) for node, answer in (honest() | {50: client(NAN), 60: far}).items()}

    def strategy(**settings):
        return RobustStrategy("mda", f=2, folder=tmp_path, exclude_after=2, **settings)

    run(strategy(), nodes, rounds=1)
    result = run(strategy(), nodes, rounds=4)  # another process counts on
    assert {number for number, kind, node in asked if kind == "train" and node in (50, 60)} == {1, 2}
    assert {number for number, kind, node in asked if kind == "evaluate" and node in (50, 60)} == {1}
    assert {node for number, _, node in asked if number == 4} == set(honest())
    metrics = result.train_metrics_clientapp
    assert "excluded/50" not in metrics[1]
    assert metrics[2]["excluded/50"] == metrics[4]["excluded/60"] == 1
    assert metrics[4]["round/updates"] == 7
    assert "node 60 is excluded: rejected in 2 rounds in a row." in caplog.text
    with pytest.raises(SettingError, match="exclude_after: 2, got 3"):
        run(RobustStrategy("mda", f=2, folder=tmp_path, exclude_after=3), nodes, rounds=4)


def test_nobody_is_excluded_whom_a_round_needs(caplog):
    """Krum rejects all but one: no more than f go, and as many stay as it needs, f + 3."""
    for f, stay in [(1, 6), (4, 7)]:
        result = run(RobustStrategy("krum", f=f, exclude_after=1), honest(), rounds=3)
        assert [metrics["round/updates"] for metrics in result.train_metrics_clientapp.values()] == [7, stay, stay]
    assert "stays, though rejected in 1 rounds in a row" in caplog.text


def test_a_round_without_guarantee_is_told_or_stops_the_run(caplog):
    """Krum is proven for n >= 2f + 3."""
    nodes = honest(6)
    settings = {"min_train_nodes": 6, "min_available_nodes": 6}
    result = run(RobustStrategy("krum", f=2, **settings), nodes)
    assert result.train_metrics_clientapp[1]["round/no_guarantee"] == 1
    assert "round 1: no guarantee: needs n >= 2f + 3" in caplog.text
    assert run(RobustStrategy("krum", f=1, **settings), nodes).train_metrics_clientapp[1]["round/no_guarantee"] == 0
    with pytest.raises(SettingError, match="round 1 of Krum: no guarantee: needs n >= 2f"):
        run(RobustStrategy("krum", f=2, on_no_guarantee="stop", **settings), nodes)
