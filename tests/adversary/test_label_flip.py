from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from lightning_fl.adversary.label_flip import LabelFlip, flip
from lightning_fl.client.base import ClientResult
from lightning_fl.client.gradient import Gradient
from lightning_fl.samples import Samples
from tests import world


def test_flip_mirrors_the_labels():
    """FRPG's pairs: 4 and 5, 3 and 6, 2 and 7, 1 and 8, 0 and 9."""
    samples = Samples(torch.zeros(10, 1), torch.arange(10), 10, mean=(0.1,), std=(0.3,))
    flipped = flip(samples)
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
