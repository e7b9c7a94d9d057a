"""Delayed momentum: a rule on momenta that the server keeps of all clients, those who are absent included.

Kaoru Otsuka, Yuki Takezawa, Makoto Yamada. Delayed Momentum Aggregation: Communication-efficient Byzantine-robust
Federated Learning with Partial Participation. ICML 2026. arXiv:2509.02970: D-Byz-SGDM in the first version, DeMoA in
later ones.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, Literal

import torch
from annotated_types import Gt, Le

from lightning_fl.aggregator.base import Aggregation, Aggregator, Clients, Motion, aggregated
from lightning_fl.aggregator.remembering import RememberingWrapper, clients_of
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import check_any
from lightning_fl.updates.updates import Updates


class DelayedMomentum(RememberingWrapper):
    """Ask a rule about the momenta m_i of all clients, of which this round's are renewed.

    Of who sends x_i, m_i <- (1 - alpha p) m_i + alpha x_i, and of who does not, m_i <- (1 - alpha p) m_i.  Where a few
    clients are drawn each round, attackers may be the majority of these, but not of all.

    Its trust is the rule's in this round's clients.

    Args:
        rule: The rule; its f counts all clients.
        alpha: Step of the momentum, 0 < alpha <= 1: 0.1 is the usual momentum 0.9.  The paper has no default.
        participation: p, the share of the clients that take part in a round, 0 < p <= 1.  None: the federation's.
        absent: "decay": as above, as in the paper from its second version on.  "keep": m_i <- (1 - alpha) m_i + alpha
            x_i for who sends, and no change for who does not, as in the first.
        start: m_i before a client is seen: "zero", or "first": its first update.
        unseen: Clients never seen: "zero": rows of zeros; "skip": no rows.

    Note:
        The paper leaves the start open.  Clients should send plain gradients.  An update with NaN or inf counts as not
        sent.  Data weights play no part, as in the paper.  It remembers an update per client.

    >>> from lightning_fl.aggregator.average import Average
    >>> DelayedMomentum(Average(), alpha=0.5, participation=1.0)(torch.tensor([[2.0], [6.0]]))
    tensor([2.])
    """

    needs_ids = True
    recalls_absent = True

    def __init__(
        self,
        rule: Aggregator,
        alpha: Annotated[float, Gt(0), Le(1)] = 0.1,
        participation: Annotated[float, Gt(0), Le(1)] | None = None,
        absent: Literal["decay", "keep"] = "decay",
        start: Literal["zero", "first"] = "zero",
        unseen: Literal["zero", "skip"] = "zero",
    ):
        super().__init__(rule)
        self.alpha = alpha
        self.participation = participation
        self.absent = absent
        self.start = start
        self.unseen = unseen
        self._federation: Clients | None = None

    @property
    def moves_with(self) -> Collection[Motion]:
        """A scale and a rotation, if the rule does; see the base class."""
        return [motion for motion in self.rule.moves_with if motion != "shift"]

    @property
    def _everybody(self) -> list[int]:
        return [] if (known := self._federation) is None else [*known.honest_ids, *known.byzantine_ids]

    def check_clients(self, federation: Clients) -> None:
        """Learn who there is, and ask the rule; see the base class."""
        self._federation = federation
        super().check_clients(federation)

    def n_mixed(self, n: int) -> int:
        """All clients, where they are known; see the base class."""
        if self._federation is None or self.unseen == "skip":
            return n
        return len(self._everybody)

    def n_spoilt(self, b: int) -> int:
        """All attackers, where they are known; see the base class."""
        return b if self._federation is None or self.unseen == "skip" else len(self._federation.byzantine_ids)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        clients, known = clients_of(updates, "delayed_momentum"), self._remembered.get("momenta", {})
        finite = updates.norms().isfinite().tolist()
        sent = {client: updates.rows[i] for i, client in enumerate(clients) if finite[i]}
        check_any(sent or known, f"{updates.n}", "delayed_momentum")
        share = self.participation or (1.0 if self._federation is None else self._federation.participation)
        kept = 1 - self.alpha * (share if self.absent == "decay" else 1)
        fade = kept if self.absent == "decay" else 1.0
        seen = {*known, *sent}
        shown = sorted(seen if self.unseen == "skip" else seen.union(clients, self._everybody))
        rows = updates.like.new_zeros(len(shown), updates.d)
        for client, m in zip(shown, rows, strict=True):
            x = sent.get(client)
            if client in known:
                torch.mul(known[client].to(m), fade if x is None else kept, out=m)
            if x is not None:
                m.add_(x * (self.alpha if client in known or self.start == "zero" else 1.0))
        self._last = {"momenta": {client: m for client, m in zip(shown, rows, strict=True) if client in seen}}
        found = aggregated(self.rule, Updates(rows, ids=shown, layout=updates.layout), server)
        trust = found.trusted
        if trust is not None:
            place = {client: k for k, client in enumerate(shown)}
            trust = torch.stack([trust[place[c]] if c in place else trust.new_zeros(()) for c in clients])
        return replace(found, answer=found.update, weights=None, trust=trust, label_distributions=None)
