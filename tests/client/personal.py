"""What the tests of clients with a model of their own share: a federation in float64 and gradients by formula."""

from dataclasses import replace

import torch

from lightning_fl import FederatedModule, Federation
from lightning_fl.adversary.base import Adversary
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.client.base import minibatches
from lightning_fl.contract import world
from lightning_fl.round import Round
from tests import training


class Doubles(training.Corners):
    """18 training samples of three classes in float64."""

    def load(self):
        return tuple(replace(samples, inputs=samples.inputs.double()) for samples in super().load())


class Forge(Adversary):
    """Send these numbers."""

    def __init__(self, number):
        self.number = number

    def attack(self, honest, n_byzantine, context):
        return honest.rows.new_full((n_byzantine, honest.d), self.number)


def data(n_byzantine=1):
    """Five clients, the last ones Byzantine."""
    corners = training.data(Federation(5, n_byzantine, "replacement", "uniform"))
    return Doubles(corners.partition, corners.federation, 2, 0, 0, 4)


def fit(client, server, radius=0.5, penalty="huber", adversary=None, rounds=6, ckpt_path=None, schedule=None):
    """Train through the trainer; gives trainer and module."""
    callbacks = [ClippedSum(radius, penalty), *([adversary] if adversary else [])]
    trainer = training.trainer(callbacks, rounds)
    module = FederatedModule(world.model().double(), client, server, schedule)
    training.fit(trainer, module, data(1 if adversary else 0), ckpt_path)
    return trainer, module


def start():
    """The initial parameters, flat."""
    return torch.cat([p.detach().double().flatten() for p in world.model().parameters()])


def parameters(module):
    """The server's parameters, flat."""
    return torch.cat([p.detach().flatten() for p in module.model.parameters()])


def gradient(vector, x, y):
    """Gradient of the mean cross-entropy of softmax(W x + b): (p - e_y) x^T and p - e_y, averaged."""
    logits = x @ vector[:6].view(3, 2).T + vector[6:]
    errors = torch.softmax(logits, 1) - torch.eye(3, dtype=torch.float64)[y]
    return torch.cat([(errors.T @ x).flatten(), errors.sum(0)]) / len(y)


def samples(k, size, steps=1, flipped=()):
    """The (x, y) of each step and client in round k from 1; clients listed as flipped see 2 - y."""
    module = data()
    module.setup()
    drawn = minibatches(module.clients, size, Round(k - 1, 0.0, 0), steps)
    pairs = [[module.train.gather(indices) for indices in batch.indices] for batch in drawn]
    return [[(x, 2 - y if n in flipped else y) for n, (x, y) in enumerate(step)] for step in pairs]
