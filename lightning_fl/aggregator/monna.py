"""MoNNA: average the updates nearest to one that is trusted.

Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Lê Nguyên Hoang, Rafael Pinot, John Stephan. Robust Collaborative
Learning with Linear Gradient Overhead. ICML 2023. arXiv:2209.10931.
"""

from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, Clients, ServerNeed
from lightning_fl.errors import DivergedError, SettingError
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.updates import Updates


def monna_weights(
    gram: Float64[Tensor, "m m"], f: int, trusted: int | None = None, include_trusted: bool = True
) -> Float64[Tensor, " m"]:
    """Weigh the rows from their inner products about any origin; see `Monna`.

    Args:
        gram: Inner products of n client rows; if none of them is trusted, followed by the server's row.
        f: See `Monna`.
        trusted: Number of the trusted row.  None: the last one, which is not a client's.
        include_trusted: See `Monna`.

    Returns:
        Factor of each row in the update, the server's included.

    Raises:
        DivergedError: If the trusted row is not finite, or no client's is.
    """
    own = trusted is not None
    n = len(gram) if own else len(gram) - 1
    centre = n if trusted is None else trusted
    if not gram[centre, centre].isfinite():
        raise DivergedError("monna needs a finite trusted update, got NaN or inf; the model may have diverged.")
    clients = finite_rows(gram.diagonal()[:n], "monna")
    keep = min(n - f, len(clients))
    rows = clients if own else torch.cat([clients, clients.new_tensor([n])])
    distances = squared_distances(gram[rows][:, rows])[rows == centre][0]
    distances[rows == centre] = -1  # before its copies
    count = keep if own else keep + 1
    nearest = rows[distances.argsort(stable=True)[:count]]
    if not own and not include_trusted:
        nearest = nearest[1:]
    return gram.new_zeros(len(gram)).index_fill(0, nearest, 1 / len(nearest))


class Monna(Aggregator):
    """Average the n - f updates nearest to a trusted one, which is among them.

    Of equally near updates the first count.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.
        trusted: "server": the update from the server's samples.  A number: the client of that number (a node's own, in
            learning without a server), who must be honest and take part in every round.
        include_trusted: Whether the server's update counts, in addition to the n - f nearest ones.

    Note:
        The paper's nodes have no server.  Its vector is treated as that of one more node.  An update with NaN or inf is
        left out and counts among the f.

    >>> import torch
    >>> updates, server_update = torch.tensor([[0.0], [1.0], [3.0], [9.0]]), torch.tensor([4.0])
    >>> Monna(f=1, trusted=1)(updates), Monna(f=1)(updates, server_update)
    (tensor([1.3333]), tensor([2.]))
    """

    least = "2f + 1"

    def __init__(
        self, f: NonNegativeInt, trusted: Literal["server"] | NonNegativeInt = "server", include_trusted: bool = True
    ):
        self.f = f
        self.trusted = trusted
        self.include_trusted = include_trusted

    @property
    def needs_client(self) -> int | None:
        """The trusted one; see the base class."""
        return None if self.trusted == "server" else self.trusted

    @property
    def needs_ids(self) -> bool:
        """Whether a client is trusted; see the base class."""
        return self.trusted != "server"

    @property
    def needs_server(self) -> ServerNeed | None:
        """The trusted update, unless a client sends it; see the base class."""
        return "updates" if self.trusted == "server" else None

    def check_clients(self, federation: Clients) -> None:
        """Check that the trusted client is honest and always there; see the base class."""
        if self.trusted == "server":
            return
        if self.trusted not in federation.honest_ids:
            attacks = "attacks" if self.trusted in federation.byzantine_ids else "does not exist"
            raise SettingError(
                f"monna trusts an honest client, got {self.trusted}, who {attacks}; change aggregator.trusted."
            )
        if federation.participation < 1:
            raise SettingError(
                f"monna needs client {self.trusted} in every round, got federation.participation="
                f"{federation.participation}; set it to 1, or trusted to server."
            )

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class.

        Raises:
            SettingError: If the trusted client does not take part, or the updates do not say whose they are.
        """
        if self.trusted == "server":
            own = server.update
            weights = monna_weights(updates.centred_with(own[None]).gram, self.f, None, self.include_trusted)
            return Aggregation(updates.combination(weights[:-1], own[None], weights[-1:]), weights[:-1])
        if updates.ids is None or self.trusted not in updates.ids:
            found = "rows that are not single clients" if updates.ids is None else "a round without it"
            raise SettingError(
                f"monna needs the update of client {self.trusted}, got {found}; change aggregator.trusted."
            )
        weights = monna_weights(updates.centred.gram, self.f, list(updates.ids).index(self.trusted))
        return Aggregation(updates.combination(weights), weights)
