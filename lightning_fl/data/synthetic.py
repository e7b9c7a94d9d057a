"""Gaussian classes, drawn from a seed: data of any size at no cost.

Class z has the mean s * u_z, where u_z is a random direction of length 1, and unit variance in every feature.  Samples
are dealt to the classes in turn.  Memory: 4 bytes per feature.
"""

from typing import Any

import torch
from torch.nn.functional import normalize

from lightning_fl import seeding
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError
from lightning_fl.ranges import FiniteFloat, PositiveInt
from lightning_fl.samples import Samples


class Synthetic(FederatedDataModule):
    """Gaussian classes; see the base class for the other settings.

    Args:
        n_train: Number of training samples.
        n_test: Number of test samples.
        classes: c, number of classes.
        features: Length of a sample.
        separation: s, distance of each class's mean from the origin in standard deviations.  With many features the
            directions are nearly orthogonal, and the best rule mistakes class y for class z at a rate of about
            Phi(-s / sqrt(2)): 0.2 % at s = 4.
        data_seed: Seed of the samples.

    Raises:
        SettingError: If a number is out of range.
    """

    def __init__(
        self,
        n_train: PositiveInt = 4000,
        n_test: PositiveInt = 1000,
        classes: PositiveInt = 10,
        features: PositiveInt = 784,
        separation: FiniteFloat = 4.0,
        data_seed: int = 0,
        **settings: Any,
    ):
        super().__init__(**settings)
        if min(n_train, n_test) < classes:
            raise SettingError(
                f"synthetic needs n_train and n_test of at least classes={classes}, got {n_train} and {n_test}."
            )
        self.n_train = n_train
        self.n_test = n_test
        self.classes = classes
        self.features = features
        self.separation = separation
        self.data_seed = data_seed

    def load(self) -> tuple[Samples, Samples]:
        """Draw both splits as (N, features) numbers, float32; each split's draw is independent of the other's size."""
        return self._draw("train", self.n_train), self._draw("test", self.n_test)

    def _draw(self, split: str, n: int) -> Samples:
        directions = torch.randn(self.classes, self.features, generator=seeding.generator(self.data_seed, "means"))
        targets = torch.arange(n) % self.classes
        noise = torch.randn(n, self.features, generator=seeding.generator(self.data_seed, split))
        return Samples(noise.add_(self.separation * normalize(directions)[targets]), targets, self.classes)
