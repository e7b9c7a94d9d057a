"""A data set of your own."""

import torch

from lightning_fl import FederatedDataModule, Samples


class MyData(FederatedDataModule):
    """Three noisy blobs in the plane; the settings are those of every data set."""

    def load(self) -> tuple[Samples, Samples]:
        """Draw training and test samples, the same ones in every run."""
        return self._draw(600, seed=1), self._draw(300, seed=2)

    @staticmethod
    def _draw(n: int, seed: int) -> Samples:
        generator = torch.Generator().manual_seed(seed)
        targets = torch.arange(n) % 3
        corners = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
        return Samples(corners[targets] + 0.7 * torch.randn(n, 2, generator=generator), targets, 3)
