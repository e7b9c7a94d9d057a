"""MoNNA: average the updates nearest to one that is trusted.

Sadegh Farhadkhani, Rachid Guerraoui, Nirupam Gupta, Lê Nguyên Hoang, Rafael Pinot, John Stephan. Robust Collaborative
Learning with Linear Gradient Overhead. ICML 2023. arXiv:2209.10931.
"""

from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, ServerNeed, check_integer, check_minority
from lightning_fl.errors import DivergedError, SettingError
from lightning_fl.federation import Federation
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.products import squared_distances
from lightning_fl.updates.rows import finite_rows
from lightning_fl.updates.updates import Updates


def monna_weights(
    gram: Float64[Tensor, "m m"], f: int, trusted: int | None = None, include_trusted: bool = True
) -> Float64[Tensor, " m"]:
    """Weigh the rows from their inner products about any origin; see `monna`.

    Args:
        gram: Inner products of n client rows; if none of them is trusted, followed by the server's row.
        f: See `monna`.
        trusted: Number of the trusted row.  None: the last one, which is not a client's.
        include_trusted: See `monna`.

    Returns:
        Factor of each row in the update, the server's included.

    Raises:
        DivergedError: If the trusted row is not finite, or no client's is.
    """
    own = trusted is not None
    n = len(gram) if own else len(gram) - 1
    check_minority(n, f, "monna")
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


def monna(
    updates: Float[Tensor, "n d"], f: int, trusted: Float[Tensor, " d"] | int, include_trusted: bool = True
) -> Float[Tensor, " d"]:
    """Average the n - f updates nearest to a trusted one, which is among them.

    Args:
        updates: One update per row.
        f: Byzantine clients tolerated, 0 <= 2f < n.
        trusted: Number of the trusted update (a node's own, in learning without a server), or another vector, such as
            the update from the server's own samples.
        include_trusted: Whether another vector counts, in addition to the n - f nearest updates.

    Returns:
        Their mean; of equally near updates the first count.

    Raises:
        SettingError: If shapes do not fit, a setting is out of range, the trusted update is not finite, or no other is.

    Note:
        The paper's nodes have no server.  Its vector is treated as that of one more node.  An update with NaN or inf is
        left out and counts among the f.

    >>> updates = torch.tensor([[0.0], [1.0], [3.0], [9.0]])
    >>> monna(updates, f=1, trusted=1), monna(updates, f=1, trusted=torch.tensor([4.0]))
    (tensor([1.3333]), tensor([2.]))
    """
    rows = Updates(updates)
    if not isinstance(trusted, Tensor):
        check_integer(trusted, "monna", "trusted, the number of an update, or a tensor")
        if not 0 <= trusted < rows.n:
            raise SettingError(f"monna needs trusted in [0, {rows.n}), the number of an update, got {trusted}.")
        return rows.combine(monna_weights(rows.centred.gram, f, trusted))
    weights = monna_weights(rows.centred_with(trusted[None]).gram, f, None, include_trusted)
    return rows.combine(weights[:-1]) + weights[-1].to(trusted) * trusted


class Monna(Aggregator):
    """Average the updates nearest to a trusted one; see `monna`.

    Args:
        f: Byzantine clients tolerated, 0 <= 2f < n.
        trusted: "server": the update from the server's samples.  A number: the client of that number, who must be
            honest and take part in every round.
        include_trusted: See `monna`.
    """

    least = "2f + 1"

    def __init__(self, f: int, trusted: Literal["server"] | int = "server", include_trusted: bool = True):
        if trusted != "server" and (type(trusted) is not int or trusted < 0):
            raise SettingError(f"monna's trusted must be server or the number of a client, got {trusted!r}.")
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

    def check_clients(self, federation: Federation) -> None:
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
