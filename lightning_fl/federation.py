"""Who takes part, who is Byzantine, and what share of the data each client stands for."""

from typing import Literal, get_args

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.errors import SettingError

Placement = Literal["supplement", "replacement"]
DataWeights = Literal["uniform", "samples"]


class Federation:
    """The clients of a run.

    Args:
        n_clients: Clients that hold data.
        n_byzantine: b, Byzantine clients in each round (how many attack; what a rule is told is its own f).
        byzantine: "supplement": b clients without data beside n_clients honest ones (BOBA), n = n_clients + b.
            "replacement": the last b of the n_clients attack, and what they hold is lost (Fed-NGA, RAGA, FRPG).
        data_weights: alpha of each client.  "uniform": equal.  "samples": by the samples it holds; a client without
            data counts as the average one.

    Raises:
        SettingError: If there is no honest client, or a setting is out of range.
    """

    def __init__(self, n_clients: int, n_byzantine: int, byzantine: Placement, data_weights: DataWeights):
        if n_clients < 1 or n_byzantine < 0:
            raise SettingError(
                f"a federation needs n_clients >= 1 and n_byzantine >= 0, got {n_clients} and {n_byzantine}."
            )
        for name, value, allowed in [("byzantine", byzantine, Placement), ("data_weights", data_weights, DataWeights)]:
            if value not in get_args(allowed):
                raise SettingError(f"federation.{name} must be one of {', '.join(get_args(allowed))}, got {value!r}.")
        if byzantine == "replacement" and n_byzantine >= n_clients:
            raise SettingError(
                f"replacement needs an honest client, got n_clients={n_clients} and n_byzantine={n_byzantine}; "
                f"lower federation.n_byzantine or set federation.byzantine=supplement."
            )
        self.n_clients = n_clients
        self.n_byzantine = n_byzantine
        self.byzantine = byzantine
        self.data_weights = data_weights

    @property
    def honest_ids(self) -> range:
        """Numbers of the honest clients; all of them hold data."""
        return range(self.n_clients if self.byzantine == "supplement" else self.n_clients - self.n_byzantine)

    @property
    def byzantine_ids(self) -> range:
        """Numbers of the Byzantine clients."""
        return range(len(self.honest_ids), len(self.honest_ids) + self.n_byzantine)

    @property
    def n(self) -> int:
        """How many updates a round brings."""
        return len(self.honest_ids) + self.n_byzantine

    def weights(self, sizes: list[int]) -> Float64[Tensor, " n"]:
        """Share of each client, honest ones first.

        Args:
            sizes: Samples of each of the n_clients.
        """
        if self.data_weights == "uniform":
            return torch.full((self.n,), 1 / self.n, dtype=torch.float64)
        average = sum(sizes) / len(sizes)
        counts = torch.tensor([*sizes, *[average] * (self.n - len(sizes))], dtype=torch.float64)
        return counts / counts.sum()
