"""A lying client's replies, against what the attack's paper says of the honest ones."""

import re
from itertools import pairwise

import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason='needs flwr (pip install "lightning-fl[flower]")')

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

import lightning_fl as fl
from lightning_fl import Updates
from lightning_fl.errors import SettingError
from lightning_fl.flower import Liar, LyingGrid, RobustStrategy
from tests.flower.grid import FakeGrid
from tests.flower.test_strategy import BEGIN, MOVES, START, client, flat, honest

ALONE = {"min_train_nodes": 1, "min_available_nodes": 1, "fraction_evaluate": 0.0}


def lying(liar, move=MOVES[0], node=7):
    """A node whose app moves the model by a vector, and lies about it."""
    context = Context(1, node, {"partition-id": node}, RecordDict(), {})

    def answer(message):
        def app(message, context):
            return Message(client(move, claim=20)(message), reply_to=message)

        return liar(message, context, app)

    return answer


def first_rows(node, rounds=1, rate=1.0, start=START):
    """How the model moves, round by round, if a node that lies is all that there is: minus what it sent."""
    models = []
    strategy = RobustStrategy("average", learning_rate=rate, **ALONE)

    def keep(number, arrays):
        models.append(torch.cat([value.flatten() for value in arrays.to_torch_state_dict().values()]))

    strategy.start(FakeGrid({7: node}), ArrayRecord(start), rounds, evaluate_fn=keep)
    return [before - after for before, after in pairwise(models)]


def test_the_app_s_work_is_what_an_attack_on_its_own_work_turns():
    (sent,) = first_rows(lying(Liar(fl.adversary.BitFlip(factor=3.0), learning_rate=0.5)), rate=0.5)
    torch.testing.assert_close(sent, -3 * MOVES[0])
    first, second = first_rows(lying(Liar(fl.adversary.SameValue(2.0, from_round=1), learning_rate=0.5)), 2, 0.5)
    torch.testing.assert_close(first, MOVES[0])  # honest until then
    torch.testing.assert_close(second, torch.ones(8))  # in the unit of a gradient, times the rate


def test_a_lie_of_nan_with_ten_times_the_samples_is_one_of_the_rule_s_f():
    liar = lying(Liar(fl.adversary.NonFinite(), claim=10))
    strategy = RobustStrategy(fl.aggregator.TrimmedMean(f=1), most_examples=100)
    result = strategy.start(FakeGrid(honest() | {7: liar}), ArrayRecord(START), 1)
    assert result.train_metrics_clientapp[1]["refused/7"] == 1
    assert flat(result).isfinite().all()
    (metrics,) = claims(Liar(fl.adversary.BitFlip(), claim=10))
    assert metrics["num-examples"] == 200


def claims(liar):
    """What a liar's reply holds beside its model."""
    found = []

    def keep(contents, key):
        found.extend(record for content in contents for record in content.metric_records.values())
        return MetricRecord({"loss": 0.0})

    strategy = RobustStrategy("average", train_metrics_aggr_fn=keep, **ALONE)
    strategy.start(FakeGrid({7: lying(liar)}), ArrayRecord(START), 1)
    return found


def test_flipped_labels_are_trained_on_as_autograd_does():
    torch.manual_seed(0)
    model, x, y = nn.Linear(3, 4), torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 3, 0])
    loss = nn.functional.cross_entropy(model(x), 3 - y)
    expected = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, model.parameters())])
    samples = fl.Samples(x, y, n_classes=4)
    liar = Liar(fl.adversary.LabelFlip(), learning_rate=0.1, model=model, samples=lambda context: samples)
    (sent,) = first_rows(lying(liar, torch.zeros(16)), rate=0.1, start=model.state_dict())
    torch.testing.assert_close(sent / 0.1, expected, rtol=1e-4, atol=1e-5)


def test_liars_that_see_the_others_send_what_the_attack_makes_of_their_updates():
    """IPM: -factor times the mean of the five others, from the two nodes with the largest ids."""
    grid = LyingGrid(FakeGrid(honest()), fl.adversary.Ipm(2.0), 2, learning_rate=0.5)
    result = RobustStrategy("average", learning_rate=0.5).start(grid, ArrayRecord(START), 1)
    mean = MOVES[:5].mean(0)
    torch.testing.assert_close(flat(result), BEGIN - (5 * mean - 2 * 2 * mean) / 7)
    rule, seen = fl.aggregator.Median(), []
    attack = fl.adversary.OptIpm(from_round=1)
    grid = LyingGrid(FakeGrid(honest()), attack, [100], rule=rule)

    def keep(number, arrays):
        seen.append(torch.cat([value.flatten() for value in arrays.to_torch_state_dict().values()]))

    RobustStrategy(rule).start(grid, ArrayRecord(START), 2, evaluate_fn=keep)
    lie = attack(MOVES[1:], 1, rule=rule)
    torch.testing.assert_close(seen[0] - seen[1], MOVES.median(0).values)  # honest in the first round
    torch.testing.assert_close(seen[1] - seen[2], torch.cat([lie, MOVES[1:]]).median(0).values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [(9, "at most the number of nodes, 7, got 9"), ([999], "ids of the grid's nodes, .* got .999")],
)
def test_nodes_are_there(nodes, message):
    grid = LyingGrid(FakeGrid(honest()), fl.adversary.SameValue(1e6), nodes)
    with pytest.raises(SettingError, match=message):
        RobustStrategy("average").start(grid, ArrayRecord(START), 1)


def test_no_node_lies_where_none_is_to(monkeypatch):
    grid = LyingGrid(FakeGrid(honest()), fl.adversary.SameValue(1e6), 0)
    result = RobustStrategy("average").start(grid, ArrayRecord(START), 1)
    torch.testing.assert_close(flat(result), BEGIN - MOVES.mean(0))


class Spy(fl.adversary.SameValue):
    """Notes what it is told."""

    def __init__(self, seen, knows="nothing"):
        super().__init__(0.0)
        self.seen, self.knows = seen, knows

    def __deepcopy__(self, memo):
        return self

    def attack(self, honest, n_byzantine, context):
        self.seen.append(context)
        return super().attack(honest, n_byzantine, context)


def test_a_liar_sees_how_the_model_moved():
    seen = []
    moves = first_rows(lying(Liar(Spy(seen), learning_rate=0.5)), 3, 0.5)
    assert seen[0].previous_update is None
    for context, move in zip(seen[1:], moves, strict=False):
        torch.testing.assert_close(context.previous_update, move / 0.5)


def test_liars_at_the_grid_know_the_others_numbers_and_not_the_server_s_draws():
    drawn, seen = [], []

    class Draws(fl.aggregator.Average):
        def aggregate(self, updates, server):
            drawn.append((torch.rand((), generator=server.generator("x")).item(), list(updates.ids or ())))
            return super().aggregate(updates, server)

    class Asks(Spy):
        def attack(self, honest, n_byzantine, context):
            forged = super().attack(honest, n_byzantine, context)
            context.rule(Updates(torch.cat([honest.rows, forged])))
            return forged

    rule, models = Draws(), []
    grid = LyingGrid(FakeGrid(honest()), Asks(seen, "rule"), 2, rule=rule, learning_rate=0.5)

    def keep(number, arrays):
        models.append(torch.cat([value.flatten() for value in arrays.to_torch_state_dict().values()]))

    RobustStrategy(rule, learning_rate=0.5).start(grid, ArrayRecord(START), 3, evaluate_fn=keep)
    drawn.pop(0)  # the strategy tries its rule
    assert len({draw for draw, _ in drawn}) == 6  # each round, the attack's and the server's
    assert all(sorted(ids) == sorted(honest()) for _, ids in drawn[::2])
    assert [sorted(context.honest_ids) for context in seen] == [sorted(honest())[:5]] * 3
    assert seen[0].previous_update is None
    for context, before, after in zip(seen[1:], models, models[1:], strict=False):
        torch.testing.assert_close(context.previous_update, (before - after) / 0.5)


def test_what_an_attack_remembers_outlives_the_message_apart_for_each_node():
    """PoisonedFL: zero at first; then c = 8 times the length by which the model moved, over the rate."""
    liar = Liar(fl.adversary.Poisonedfl())
    nodes = {i: lying(liar, node=i) for i in (7, 8)} | {9: client(MOVES[1])}
    models = []

    def keep(number, arrays):
        models.append(torch.cat([value.flatten() for value in arrays.to_torch_state_dict().values()]))

    RobustStrategy("average").start(FakeGrid(nodes), ArrayRecord(START), 2, evaluate_fn=keep)
    torch.testing.assert_close(models[1], BEGIN - MOVES[1] / 3)
    lies = (models[2] - models[1]) * 3 + MOVES[1]  # of both nodes, who have the same signs
    assert lies.norm().item() == pytest.approx(2 * 8 * (MOVES[1] / 3).norm().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Liar(fl.adversary.Ipm()), "ipm needs the other clients' updates, which a client of Flower does not"),
        (lambda: Liar(fl.adversary.LabelFlip()), "label_flip needs the client's samples, got none; give model, sam"),
        (lambda: Liar(fl.adversary.LabelFlip(), model=nn.Linear(1, 1)), "got one of them; give both"),
        (lambda: Liar("bit_flip"), "adversary must be"),
        (lambda: Liar(fl.adversary.BitFlip(), learning_rate=0.0), "learning_rate must be a number above 0 and finite"),
        (lambda: Liar(fl.adversary.BitFlip(), claim="x"), "claim must be a number of at least 0 and finite, got 'x'"),
        (lambda: LyingGrid(None, fl.adversary.Ipm(), -2), "nodes must be a whole number of at least 0, got -2"),
        (lambda: LyingGrid(None, fl.adversary.Ipm(), 1, learning_rate=None), "learning_rate must be a number above 0"),
        (lambda: LyingGrid(None, fl.adversary.BitFlip(), 1), "needs the client's own data; let the mod Liar play it"),
        (lambda: LyingGrid(None, fl.adversary.OptIpm(), 1), "needs the server's rule, got none"),
    ],
)
def test_what_a_client_cannot_know_is_said_at_once(make, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        make()
