"""Label skew at its worst: each client holds one or two classes.

H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient Learning of
Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.  As in the main setting of Wenxuan Bao, Jun Wu,
Jingrui He. BOBA. AISTATS 2024. arXiv:2208.12932.
"""

from typing import Literal

import torch
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition, cut, shuffled_classes
from lightning_fl.ranges import PositiveInt

Assignment = Literal["pairs", "shards"]


class Pathological(Partition):
    """Cut every class into pure shards and give each client two (or ``shards_per_client``) of them.

    Args:
        assignment: "pairs": the BOBA authors' code.  The clients take all ordered pairs of classes (a, b) in
            lexicographic order, as many clients per pair as n_clients / c^2, so one client in c holds a single class,
            and client 0 holds class 0 only.  Where n_clients is not a multiple of c^2 it deals "shards".  "shards": the
            paper's words.  Shards of about equal size, each of one class, are dealt at random.
        shards_per_client: n_s, at least 1; "pairs" needs 2.

    Raises:
        SettingError: If a setting is out of range.
    """

    def __init__(self, assignment: Assignment = "pairs", shards_per_client: PositiveInt = 2):
        if assignment == "pairs" and shards_per_client != 2:
            raise SettingError(
                f"pathological with assignment=pairs needs shards_per_client=2, got {shards_per_client}; use "
                f"assignment=shards for other numbers."
            )
        self.assignment = assignment
        self.shards_per_client = shards_per_client

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        deal = self._shards if self.assignment == "shards" or n_clients % n_classes**2 else self._pairs
        classes = shuffled_classes(targets, n_classes, generator)
        holders = deal([len(members) for members in classes], n_clients, generator)
        parts: list[list[Tensor]] = [[] for _ in range(n_clients)]
        for members, clients in zip(classes, holders, strict=True):
            for client, shard in zip(clients, cut(members, torch.ones(len(clients))), strict=True):
                parts[client].append(shard)
        return [torch.cat(part) if part else targets.new_empty(0) for part in parts]

    def note(self, n_clients: int, n_classes: int) -> str | None:
        """Say that shards are dealt where pairs do not fit; see the base class."""
        if self.assignment == "shards" or not n_clients % n_classes**2:
            return None
        return f"{n_clients} clients are not a multiple of c^2 = {n_classes**2}: shards dealt at random, not pairs"

    def _pairs(self, sizes: list[int], n_clients: int, generator: torch.Generator) -> list[list[int]]:
        """For each class its holders, ascending; one that holds two shards stands twice."""
        c = len(sizes)
        repeat = n_clients // c**2
        labels = [divmod(client // repeat, c) for client in range(n_clients)]
        return [[client for client in range(n_clients) for label in labels[client] if label == z] for z in range(c)]

    def _shards(self, sizes: list[int], n_clients: int, generator: torch.Generator) -> list[list[int]]:
        """For each class the clients that drew its shards."""
        n_shards, total = self.shards_per_client * n_clients, sum(sizes)
        c = sum(size > 0 for size in sizes)
        if not c <= n_shards <= total:
            raise SettingError(
                f"assignment=shards needs between {c} (one per class) and {total} (one per sample) shards, got "
                f"{n_clients} clients x {self.shards_per_client}; change federation.n_clients."
            )
        # Largest remainder: shards per class in proportion to its size, at least one.
        exact = [n_shards * size / total for size in sizes]
        counts = [max(int(share), int(size > 0)) for share, size in zip(exact, sizes, strict=True)]
        while sum(counts) != n_shards:
            step = 1 if sum(counts) < n_shards else -1
            gain = [step * (exact[z] - counts[z]) if counts[z] > (step < 0) else -torch.inf for z in range(len(sizes))]
            counts[gain.index(max(gain))] += step
        draw = torch.randperm(n_shards, generator=generator).split(counts)
        return [sorted((shards // self.shards_per_client).tolist()) for shards in draw]
