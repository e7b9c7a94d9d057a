"""Clients dealt out over several processes, each of which computes its own."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import override

from lightning_fl.client.base import Client, ClientResult, check_result
from lightning_fl.network.parameters import trainable
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch
from lightning_fl.updates.exchange import Block, begin_total, deal, from_process, world
from lightning_fl.updates.storage import Storage


class Dealt(Client):
    """Clients dealt out over the processes: each computes its own, and everybody gets all updates, or their columns.

    Args:
        client: The work of each client.
        columns: The columns that this process holds.
        homes: The process that holds a client's memory, by the client's number; clients without memory are computed
            anywhere.
        storage: Makes the matrix that holds the rows of this process's clients until they are exchanged.
    """

    def __init__(self, client: Client, columns: Block, homes: dict[int, int], storage: Storage):
        super().__init__(client.client_chunk)
        self.client = client
        self.columns = columns
        self.homes = homes
        self.storage = storage

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Compute the clients' updates, each in one process.

        Args:
            model: See `Client.updates`.
            batch: See `Client.updates`.
            this_round: See `Client.updates`.
            out: (h, k) matrix for the k columns that this process holds.  None: a new one of all columns.
        """
        columns = self.columns
        parts = self._deal(batch)
        own = parts[columns.rank]
        like = next(iter(trainable(model).values()))
        rows = self.storage.matrix(len(own), columns.d, like)
        sums = torch.zeros(len(batch) + 1, dtype=torch.float64, device=like.device)  # losses, and sample gradients
        if own:
            part = replace(batch, indices=[batch.indices[i] for i in own], ids=[batch.ids[i] for i in own])
            result = self.client.updates(model, part, this_round, out=rows)
            check_result(result, rows, self.client)
            rows, sums[own], sums[-1] = result.updates, result.losses.double(), result.sample_gradients
        sent = begin_total(sums)  # beside the rows: waiting takes longer than sending
        if out is None:
            out = like.new_empty(len(batch), columns.d)
            columns.to_all(rows, parts, out)
        else:
            columns.to_columns(rows, parts, out)
        sums = sent()
        return ClientResult(out, sums[:-1].to(like.dtype), int(sums[-1]))

    @override
    def without_momentum(self) -> Client:
        return Dealt(self.client.without_momentum(), self.columns, self.homes, self.storage)

    @override
    def otherwise(self, learning_rate: float | None, epochs: int | None) -> Client:
        return Dealt(self.client.otherwise(learning_rate, epochs), self.columns, self.homes, self.storage)

    @override
    def upload_rate(self, this_round: Round) -> float:
        return self.client.upload_rate(this_round)

    def _deal(self, batch: ClientBatch) -> list[list[int]]:
        homes = [self.homes.get(client) for client in batch.ids]
        if any(home is not None for home in homes):
            return [[i for i, home in enumerate(homes) if (home or 0) == r] for r in range(self.columns.n_processes)]
        return deal(costs(self.client, batch), self.columns.n_processes)


def costs(client: Client, batch: ClientBatch) -> list[float]:
    """How many samples each client computes on in a step, or in whole epochs."""
    most = None if getattr(client, "epochs", None) else getattr(client, "batch_size", None)
    return [float(size if most is None else min(size, most)) for size in batch.sizes]


def homes(client: Client, everybody: ClientBatch) -> dict[int, int]:
    """Where the memory of each client lies, by number, for a client that has one."""
    if world() == 1 or not list(client.buffers()):
        return {}
    parts = deal(costs(client, everybody), world())
    return {everybody.ids[i]: r for r, part in enumerate(parts) for i in part}


def collect(client: Client, homes: dict[int, int], device: torch.device) -> None:
    """Give every process what all clients remember: one row per client in each buffer."""
    for buffer in client.buffers():
        for number, home in sorted(homes.items()):
            buffer[number] = from_process(home, buffer[number].to(device))
