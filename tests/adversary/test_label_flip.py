from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from lightning_fl import FederatedModule, Federation, SettingError, TensorData
from lightning_fl.adversary.label_flip import LabelFlip, LabelFlipPair, LabelFlipRandom
from lightning_fl.client.base import ClientResult
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.partition.iid import Iid
from lightning_fl.round import Round
from lightning_fl.samples import Samples
from tests import training

FIRST = Round(0, 0.1, seed=0)


def test_flip_mirrors_the_labels():
    """FRPG's pairs: 4 and 5, 3 and 6, 2 and 7, 1 and 8, 0 and 9."""
    samples = Samples(torch.zeros(10, 1), torch.arange(10), 10, mean=(0.1,), std=(0.3,))
    flipped = LabelFlip().labels(samples, FIRST)
    assert flipped.targets.tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert samples.targets.tolist() == list(range(10))
    assert flipped.inputs is samples.inputs
    assert (flipped.mean, flipped.std, flipped.n_classes) == ((0.1,), (0.3,), 10)


def test_clients_train_honestly_on_flipped_labels():
    context = world.context()
    forged = LabelFlip().attack(world.updates(), 3, context)
    for row, indices in zip(forged, context.byzantine.indices, strict=True):
        model, samples = world.model(), context.byzantine.samples
        F.cross_entropy(model(samples.inputs[indices]), 2 - samples.targets[indices]).backward()
        torch.testing.assert_close(row, torch.cat([p.grad.flatten() for p in model.parameters()]))
    honest = Gradient().updates(context.model, context.byzantine, context.round).updates
    # Client z holds class z only, and 1 is the middle of three classes.
    assert [torch.equal(a, b) for a, b in zip(forged, honest, strict=True)] == [False, True, False]


def test_clients_keep_who_they_are():
    class Spy(Gradient):
        def updates(self, model, batch, this_round, out=None):
            assert tuple(batch.ids) == (7, 8, 9)
            return ClientResult(torch.full((3, world.D), 5.0), torch.zeros(3), 0)

    context = world.context()
    context = replace(context, client=Spy(), byzantine=replace(context.byzantine, ids=(7, 8, 9)))
    assert LabelFlip().attack(world.updates(), 3, context).unique().item() == pytest.approx(5)


def digits(n=10_000):
    return Samples(torch.zeros(n, 1), torch.arange(n) % 10, 10, mean=(0.1,), std=(0.3,))


@pytest.mark.parametrize(("among", "share"), [("others", 1 / 9), ("all", 1 / 10)])
def test_random_labels_are_uniform(among, share):
    samples = digits()
    drawn = LabelFlipRandom(among).labels(samples, FIRST)
    table = torch.zeros(10, 10).index_put((samples.targets, drawn.targets), torch.ones(10_000), accumulate=True) / 1000
    own, others = table.diagonal(), table[~torch.eye(10, dtype=torch.bool)]
    assert (others - share).abs().max() < 0.045  # 4.5 standard deviations
    assert (own == 0).all() if among == "others" else (own - share).abs().max() < 0.045
    assert samples.targets.equal(digits().targets)
    assert drawn.inputs is samples.inputs


def test_random_labels_of_one_class_stay():
    samples = Samples(torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), 1)
    assert LabelFlipRandom().labels(samples, FIRST).targets.tolist() == [0, 0, 0]


def test_relabelling():
    assert LabelFlipPair(2, 7).labels(digits(10), FIRST).targets.tolist() == [0, 1, 7, 3, 4, 5, 6, 7, 8, 9]
    assert LabelFlipPair(None, 3).labels(digits(10), FIRST).targets.tolist() == [3] * 10


def gradients(context, targets):
    """By autograd, of the context's Byzantine clients with these labels."""
    for indices in context.byzantine.indices:
        model, samples = world.model(), context.byzantine.samples
        F.cross_entropy(model(samples.inputs[indices]), targets[indices]).backward()
        yield torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize(
    ("attack", "wrong"),
    [
        (LabelFlipPair(0, 2), lambda y: y.where(y != 0, 2)),
        (LabelFlipPair(None, 1), torch.ones_like),
    ],
)
def test_clients_train_honestly_on_relabelled_samples(attack, wrong):
    context = world.context()
    expected = list(gradients(context, wrong(context.byzantine.samples.targets)))
    torch.testing.assert_close(attack.attack(world.updates(), 3, context), torch.stack(expected))


@pytest.mark.parametrize("redraw", [False, True])
def test_random_labels_last_for_the_run_unless_redrawn(redraw):
    attack, samples = LabelFlipRandom("others", redraw), world.samples(50)
    first, second, other = (
        attack.labels(samples, Round(index, 0.1, seed)).targets for index, seed in [(0, 0), (3, 0), (0, 1)]
    )
    assert first.equal(second) != redraw
    assert not first.equal(other)
    assert (first != samples.targets).all()


def test_evaluations_tell_how_the_pair_fares():
    confusion = torch.tensor([[5, 1, 2], [3, 6, 1], [0, 0, 9]])
    assert LabelFlipPair(0, 2).observe(confusion) == {"source_recall": 5 / 8, "source_as_target": 2 / 8}
    assert LabelFlipPair(None, 1).observe(confusion) == {"source_recall": 14 / 17, "source_as_target": 1 / 17}
    assert LabelFlipPair(0, 2).observe(0 * confusion) == {}
    assert LabelFlip().observe(confusion) == {}


def test_refuses_classes_that_are_not_there():
    data = SimpleNamespace(n_classes=5)
    for attack, wrong in [(LabelFlipPair(2, 7), 7), (LabelFlipPair(None, 5), 5), (LabelFlipPair(8, 0), 8)]:
        with pytest.raises(SettingError, match=f"classes below 5, got {wrong}"):
            attack.check_data(data)
    nobody = SimpleNamespace(indices=[], honest_ids=[])
    for attack in (LabelFlipPair(2, 4), LabelFlipPair(4, 2)):
        attack.check_data(SimpleNamespace(n_classes=5, everybody=nobody, federation=nobody))


def test_some_attacker_must_hold_what_is_labelled_wrongly():
    """One client per class, and the last one attacks."""

    class Apart(Iid):
        def assign(self, targets, n_clients, n_classes, generator):
            return [(targets == z).nonzero().flatten() for z in range(n_clients)]

    def fit(source, b):
        held, federation = world.samples(6), Federation(3, b, "replacement", "uniform")
        split = (held.inputs, held.targets)
        data = TensorData(split, split, Apart(), federation=federation, server_samples=2)
        training.fit(training.trainer([LabelFlipPair(source, 0)], 1), FederatedModule(world.model()), data)

    fit(2, 1)
    fit(1, 0)
    with pytest.raises(SettingError, match="changes samples of class 1, got none among those of 1 Byzantine clients"):
        fit(1, 1)
    with pytest.raises(SettingError, match="classes below 3, got 8"):  # evaluations ask for it, whoever attacks
        fit(8, 0)
