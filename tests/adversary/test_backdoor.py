"""What all backdoors share: who is poisoned, how the poisoned train, and what is measured."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD

from lightning_fl import ClientBatch, FederatedModule, Federation, Samples, SettingError
from lightning_fl.adversary.backdoor import shorten, stamp
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.adversary.dba import Dba
from lightning_fl.callback.record import Record
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.saga import Saga
from lightning_fl.contract import conf, world
from lightning_fl.contract.images import bytes_of, pictures
from lightning_fl.partition.sorted import Sorted
from tests import training


def badnets(target=0, source=None, share=0.5, size=3):
    return Badnets(size, target=target, source=source, share=share)


def byzantine(sizes=(10, 25, 7), ids=(4, 7, 9)):
    """Three clients on shuffled byte images."""
    draw = torch.Generator().manual_seed(2)
    return ClientBatch(bytes_of(42), list(torch.randperm(42, generator=draw).split(list(sizes))), ids)


def parts(batch):
    """Inputs and targets of each client, as stored."""
    return [(batch.samples.inputs[indices], batch.samples.targets[indices]) for indices in batch.indices]


def bears_the_patch(image, size=3):
    return bool((image[:, -size:, -size:] == 255).all())


@pytest.mark.parametrize("share", [0.1, 0.32, 0.5, 1.0])
def test_a_share_of_each_clients_samples_is_poisoned_and_nothing_else(share):
    batch = byzantine()
    before = batch.samples.inputs.clone(), batch.samples.targets.clone()
    poisoned = badnets(share=share).poison(batch, seed=3)
    assert poisoned.ids == batch.ids
    for (x, y), (ours, labels) in zip(parts(batch), parts(poisoned), strict=True):
        changed = [i for i in range(len(x)) if not torch.equal(x[i], ours[i])]
        assert len(changed) == max(round(share * len(x)), 1)
        for i in range(len(x)):
            if i in changed:
                expected = x[i].clone()
                expected[:, 9:, 11:] = 255  # 12 x 14 pixels
                assert torch.equal(ours[i], expected)
                assert labels[i] == 0
            else:
                assert labels[i] == y[i]
    assert torch.equal(batch.samples.inputs, before[0])
    assert torch.equal(batch.samples.targets, before[1])
    assert (poisoned.samples.mean, poisoned.samples.std) == (batch.samples.mean, batch.samples.std)


@pytest.mark.parametrize("source", [0, 1])
def test_only_the_source_class_and_the_next_class(source):
    batch = byzantine()
    poisoned = badnets(target=None, source=source).poison(batch, seed=0)
    for (x, y), (ours, labels) in zip(parts(batch), parts(poisoned), strict=True):
        changed = [i for i in range(len(x)) if not torch.equal(x[i], ours[i])]
        assert len(changed) == max(round(0.5 * int((y == source).sum())), 1)
        assert {(y[i].item(), labels[i].item()) for i in changed} == {(source, source + 1)}
    poisoned = badnets(target=None, share=1.0).poison(batch, seed=0)
    for (_, y), (_, labels) in zip(parts(batch), parts(poisoned), strict=True):
        assert labels.tolist() == [{0: 1, 1: 2, 2: 0}[z] for z in y.tolist()]


def test_a_client_without_the_source_class_is_honest():
    batch = byzantine()
    without = ClientBatch(batch.samples, [(batch.samples.targets != 1).nonzero().flatten()], [3])
    poisoned = badnets(source=1).poison(without, seed=0)
    assert torch.equal(poisoned.samples.inputs, batch.samples.inputs[without.indices[0]])


def test_the_choice_depends_on_seed_and_client_alone():
    def chosen(batch, seed=0):
        return [[bears_the_patch(x) for x in inputs] for inputs, _ in parts(badnets().poison(batch, seed))]

    batch = byzantine()
    alone = ClientBatch(batch.samples, batch.indices[1:2], batch.ids[1:2])
    assert chosen(alone) == chosen(batch)[1:2]
    assert chosen(batch, seed=1) != chosen(batch)
    alike = ClientBatch(batch.samples, [torch.arange(20)] * 2, (1, 2))
    first, second = chosen(alike)
    assert first != second


@pytest.mark.parametrize("make", [lambda: Gradient(), lambda: Saga(50, max_memory_gb=1.0)])
def test_clients_train_honestly_on_what_is_poisoned(make):
    """White is (1 - mean) / std of each channel after standardisation."""
    batch = byzantine()
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 12 * 14, 3))
    client = make()
    client.prepare(net, replace(batch, ids=range(3)))
    context = replace(world.context(), model=net, client=client, byzantine=replace(batch, ids=range(3)))
    forged = badnets(target=2, share=1.0).attack(world.updates(), 3, context)
    for row, indices in zip(forged, batch.indices, strict=True):
        x, _ = batch.samples.gather(indices)
        x[:, 0, 9:, 11:] = (1 - 0.25) / 0.5
        x[:, 1, 9:, 11:] = (1 - 0.5) / 0.2
        loss = F.cross_entropy(net(x), torch.full((len(x),), 2))
        g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(net.parameters()))])
        torch.testing.assert_close(row, g, rtol=1e-4, atol=1e-5)


def test_success_is_measured_on_samples_of_other_classes():
    test = bytes_of(30, seed=4)
    triggered = badnets(target=1).triggered(test)
    others = [i for i in range(30) if i % 3 != 1]
    assert triggered.targets.tolist() == [1] * 20
    for image, i in zip(triggered.inputs, others, strict=True):
        expected = test.inputs[i].clone()
        expected[:, 9:, 11:] = 255
        assert torch.equal(image, expected)
    assert badnets(target=1, source=2).triggered(test).targets.tolist() == [1] * 10
    assert badnets(target=None).triggered(test).targets.tolist() == [(i % 3 + 1) % 3 for i in range(30)]
    assert not any(bears_the_patch(image) for image in test.inputs)


def test_white_is_255_of_bytes_and_1_of_other_images():
    pixels = torch.tensor([[True, False]])
    assert stamp(torch.zeros(2, 1, 1, 2), pixels).tolist() == [[[[1.0, 0.0]]]] * 2
    assert stamp(torch.zeros(1, 1, 1, 2, dtype=torch.uint8), pixels).tolist() == [[[[255, 0]]]]


def test_shorten_leaves_short_updates_alone():
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1e30, 0.0]])
    torch.testing.assert_close(shorten(rows, 1.0), torch.tensor([[0.0, 0.0], [0.6, 0.8], [1.0, 0.0]]))
    assert torch.equal(shorten(rows[:2], 5.0), rows[:2])


class Pictures(training.Corners):
    """The federation of `tests.world` in pictures."""

    def load(self):
        return pictures(world.samples(40)), pictures(world.samples(10, seed=1))


def data(placement="replacement", byzantine_data=None, kind=Pictures):
    corners = training.data(Federation(6, 2, placement, "uniform", byzantine_data=byzantine_data))
    return kind(corners.partition, corners.federation, 2, 0, 0, 4)


def module():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))
    return FederatedModule(net, Gradient(), partial(SGD, lr=0.02))


@pytest.mark.parametrize(
    ("placement", "byzantine_data"), [("replacement", None), ("supplement", "iid"), ("supplement", "copies")]
)
def test_the_success_rate_is_reported_beside_accuracy(tmp_path, placement, byzantine_data):
    run, record, attack = module(), Record(tmp_path), badnets(share=0.9, size=5)
    federation = data(placement, byzantine_data)
    training.fit(training.trainer([attack, record], 60, val_check_interval=30), run, federation)
    hits = []
    for x, y in zip(federation.test.inputs, federation.test.targets.tolist(), strict=True):
        if y != 0:
            marked = x.clone()
            marked[:, 7:, 7:] = federation.train.inputs.max()
            hits.append(run.model(marked[None]).argmax().item() == 0)
    rate = sum(hits) / 20
    assert run.evaluation["attack/success_rate"] == pytest.approx(rate, abs=1e-6)
    assert record.metrics.rows[-1]["attack/success_rate"] == pytest.approx(rate, abs=1e-6)
    assert "attack/success_rate" in (tmp_path / "metrics.csv").read_text().splitlines()[0]
    clean = module()
    calm = Pictures(federation.partition, Federation(6, 0, "replacement", "uniform"), 2, 0, 0, 4)
    training.fit(training.trainer([attack], 60, val_check_interval=30), clean, calm)
    assert run.evaluation["accuracy"] > 0.9
    assert rate > clean.evaluation["attack/success_rate"] + 0.3


def test_other_attacks_have_no_success_rate():
    run = module()
    training.fit(training.trainer([conf.make("adversary", "ipm")], 2), run, data())
    assert not any(name.startswith("attack/") for name in run.evaluation)


class Few(Pictures):
    """Test samples of class 0 only."""

    def load(self):
        train, test = super().load()
        return train, replace(test, inputs=test.inputs[:10], targets=test.targets[:10])


class Flat(Pictures):
    """No pictures."""

    def load(self):
        return tuple(Samples(part.inputs.flatten(1), part.targets, 3) for part in super().load())


class Last(Pictures):
    """Channels last, as arrays of images often have them."""

    def load(self):
        return tuple(Samples(part.inputs.repeat(1, 3, 1, 1).movedim(1, 3), part.targets, 3) for part in super().load())


class Scaled(Pictures):
    """Two channels of floats from -5 to 2 and from 0 to 40."""

    def load(self):
        train, test = super().load()
        both = torch.tensor([7.0, 40.0])[:, None, None], torch.tensor([-5.0, 0.0])[:, None, None]
        draw = torch.Generator().manual_seed(0)
        inputs = [torch.rand(len(part), 2, 12, 12, generator=draw) * both[0] + both[1] for part in (train, test)]
        inputs[0][0, :, 0, 0] = torch.tensor([2.0, 40.0])
        return tuple(replace(part, inputs=x) for part, x in zip((train, test), inputs, strict=True))


@pytest.mark.parametrize("attack", [badnets(), Dba(share=0.5)])
def test_white_is_the_brightest_that_a_channel_has(attack):
    federation = data(kind=Scaled)
    federation.setup()
    attack.check_data(federation)
    before = federation.test.inputs[federation.test.targets != 0]
    after = attack.triggered(federation.test).inputs
    stamped = (after != before).any(1)[0]
    assert stamped.sum() == (9 if isinstance(attack, Badnets) else 16)
    for channel, white in enumerate([2.0, 40.0]):
        assert (after[:, channel, stamped] == white).all()
    assert torch.equal(after[:, :, ~stamped], before[:, :, ~stamped])


@pytest.mark.parametrize(
    ("attack", "federation", "message"),
    [
        (
            badnets(),
            data(kind=Last),
            r"channels in front, got samples of shape \(12, 12, 3\); give x\.movedim\(-1, 1\)",
        ),
        (badnets(), data("supplement"), "a backdoor needs Byzantine clients with data, got supplementary ones, who"),
        (badnets(target=3), data(), "badnets needs a class below 3 as target, got 3"),
        (badnets(source=5), data(), "badnets needs a class below 3 as source, got 5"),
        (badnets(), data(kind=Few), r"test samples of classes other than its target, got none with target=0 and"),
        (badnets(target=0, source=1), data(kind=Few), "got none with target=0 and source=1"),
        (badnets(), data(kind=Flat), r"is put on images, got samples of shape \(144,\)"),
        (badnets(size=13), data(), "a trigger of 13 x 13 pixels does not fit into images of 12 x 12"),
        (Dba(shift=3), data(), "a trigger of 7 x 13 pixels does not fit into images of 12 x 12"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(attack, federation, message):
    run = module()
    before = [p.detach().clone() for p in run.parameters()]
    with pytest.raises(SettingError, match=message):
        training.fit(training.trainer([attack], 2), run, federation)
    assert all(torch.equal(p, q) for p, q in zip(run.parameters(), before, strict=True))


def test_some_attacker_must_hold_the_source_class():
    """Sorted by class, the last two of six clients hold class 2 alone."""
    federation = Pictures(Sorted(), Federation(6, 2, "replacement", "uniform"), 2, 0, 0, 4)
    training.fit(training.trainer([badnets(source=2)], 1), module(), federation)
    for source in (0, 1):
        with pytest.raises(SettingError, match=f"class {source}, got none among those of 2 Byzantine clients"):
            training.fit(training.trainer([badnets(target=2, source=source)], 1), module(), federation)
