"""Samples dealt to clients, and counted."""

import torch

# MNIST's training images per class.
MNIST = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def targets_of(sizes):
    """Samples of each class, in an order that is no help."""
    targets = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(99))]


def deal(partition, sizes, n_clients, seed=0):
    """Give each client's samples, and how many of each class they are."""
    targets = targets_of(sizes)
    parts = partition(targets, n_clients, len(sizes), torch.Generator().manual_seed(seed))
    return parts, [torch.bincount(targets[part], minlength=len(sizes)).tolist() for part in parts]
