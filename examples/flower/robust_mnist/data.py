"""MNIST with label skew: who holds what."""

from functools import cache

import torch

import lightning_fl as fl


@cache
def federation(n_clients: int, seed: int) -> fl.FederatedDataModule:
    """Spread the 5,000 images that come with the package: two shards of one digit per client, 100 images at the server.

    Every process makes the same partition from the seed.
    """
    module = fl.data.Mnist5k(
        partition=fl.partition.Pathological(),
        federation=fl.Federation(n_clients, n_byzantine=0),
        server_samples=10,
        seed=seed,
    )
    module.setup()
    return module


def own_images(partition: int, n_clients: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and digits of one client."""
    data = federation(n_clients, seed)
    return data.train.gather(data.clients.indices[partition])
