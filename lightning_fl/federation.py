"""Who takes part, who is Byzantine, and what share of the data each client stands for."""

from collections.abc import Sequence
from inspect import signature
from numbers import Integral, Number
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl import seeding
from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked, NonNegativeInt, PositiveInt

Placement = Literal["supplement", "replacement"]
DataWeights = Literal["uniform", "samples"]
ByzantineData = Literal["copies", "iid"]
Sampling = Literal["groups", "everybody", "bernoulli"]


class Federation(Checked):
    """The clients of a run.

    Args:
        n_clients: Clients that hold data.
        n_byzantine: b, how many attack (what a rule is told is its own f).
        byzantine: "supplement": b clients without data beside n_clients honest ones (BOBA), n = n_clients + b.
            "replacement": b of the n_clients attack, and what they hold is lost (Fed-NGA, RAGA, FRPG).
        data_weights: alpha of each client.  "uniform": equal.  "samples": by the samples it holds; a client without
            data counts as the average one.
        which: The clients that attack under replacement.  "last": the last b.  "random": b drawn by the seed, the same
            in all rounds.  A list: these b numbers.
        participation: Share of the clients that take part in a round, in (0, 1], or, above 1, how many of all: that
            share of the honest and of the Byzantine ones, rounded, drawn anew each round without replacement.
        seed: Seed of the draws of Byzantine clients and of participants.
        byzantine_data: Samples of supplementary Byzantine clients, for attacks that train (flipped labels, backdoors).
            "copies": the samples of the first clients.  "iid": as many as a client holds on average, drawn from
            all clients' samples, who keep them.  None: as "copies", except for backdoors, which ask for a choice.
        sampling: How a round's participants are drawn.  "groups": the share of the honest and that of the Byzantine
            clients apart, so that equally many attack in each round.  "everybody": the share, rounded, of all together.
            "bernoulli": each client by itself, with the share as its probability.

    Raises:
        SettingError: If there is no honest client, or no Byzantine one in any round, or a setting is out of range.

    Note:
        BOBA's Table 8 gives the participation rate alone; its code would keep all attackers in each round, which
        contradicts its results.  Here Byzantine clients are drawn like honest ones.  A rule's f counts the updates of
        one round, so scale it by the same rate.

        Of "everybody" and by "bernoulli" the number of attackers varies and may be none or a majority; the rule is told
        its own f, and nothing else.  A round's record has ``byzantine_drawn``.  An attack that cannot serve a draw,
        such as LIE where attackers are a majority, sends zeros.  A draw without an honest client, or of fewer clients
        than the rule can serve, leaves the model as it is.
    """

    def __init__(
        self,
        n_clients: PositiveInt = 100,
        n_byzantine: NonNegativeInt = 15,
        byzantine: Placement = "supplement",
        data_weights: DataWeights = "uniform",
        which: str | Sequence[int] = "last",
        participation: Annotated[int | float, "a share in (0, 1] or a count above 1"] = 1.0,
        seed: int = 0,
        byzantine_data: ByzantineData | None = None,
        sampling: Sampling = "groups",
    ):
        if byzantine == "replacement" and n_byzantine >= n_clients:
            raise SettingError(
                f"replacement needs an honest client, got n_clients={n_clients} and n_byzantine={n_byzantine}; "
                f"lower federation.n_byzantine or set federation.byzantine=supplement."
            )
        if byzantine_data is not None and byzantine == "replacement":
            raise SettingError(
                f"federation.byzantine_data is for supplementary Byzantine clients only, got {byzantine_data} and "
                f"federation.byzantine=replacement, where they keep their own data; set it to null."
            )
        n = n_clients + (n_byzantine if byzantine == "supplement" else 0)
        self._count = int(participation) if isinstance(participation, Integral) and 1 < participation <= n else None
        if self._count is not None:
            participation = self._count / n
        if not 0 < participation <= 1:
            raise SettingError(
                f"federation.participation must be a share above 0 and at most 1, or how many of {n} clients, got "
                f"{participation!r}."
            )
        self.n_clients = n_clients
        self.n_byzantine = n_byzantine
        self.byzantine = byzantine
        self.data_weights = data_weights
        self.which = which.tolist() if hasattr(which, "tolist") else which
        self.participation = participation
        self.seed = seed
        self.byzantine_data = byzantine_data
        self.sampling = sampling
        if n_byzantine and sampling == "groups" and not self._present(n_byzantine, 0):
            raise SettingError(
                f"federation.participation={self._count or participation} of {n} clients takes none of {n_byzantine} "
                f"Byzantine ones into a round; raise it, or federation.n_byzantine, or take adversary=none."
            )
        self.byzantine_ids = self._choose()
        """Numbers of the Byzantine clients."""
        everybody = range(n_clients if byzantine == "replacement" else n_clients + n_byzantine)
        self.honest_ids = sorted(set(everybody) - set(self.byzantine_ids))
        """Numbers of the honest clients; all of them hold data."""

    def replace(self, **changes: Any) -> "Federation":
        """Copy the federation with some settings changed.

        Args:
            changes: New values; the others stay.
        """
        settings = {name: getattr(self, name) for name in signature(Federation).parameters}
        if changes.get("n_byzantine") == 0:  # no client is chosen and no data are handed out
            settings |= {"which": "last", "byzantine_data": None}
        settings |= changes
        if self._count is not None and "participation" not in changes:
            supplement = settings["n_byzantine"] if settings["byzantine"] == "supplement" else 0
            settings["participation"] = min(self._count, settings["n_clients"] + supplement)
        return Federation(**settings)

    def _choose(self) -> list[int]:
        n, b = self.n_clients, self.n_byzantine
        if self.byzantine == "supplement":
            if self.which != "last":
                raise SettingError(
                    f"supplementary Byzantine clients come last, got federation.which={self.which}; set "
                    f"federation.byzantine=replacement."
                )
            return list(range(n, n + b))
        if self.which == "last":
            return list(range(n - b, n))
        if self.which == "random":
            return sorted(torch.randperm(n, generator=seeding.generator(self.seed, "byzantine"))[:b].tolist())
        if isinstance(self.which, str | Number | None):
            raise SettingError(f"federation.which must be last, random or a list of clients, got {self.which!r}.")
        whole = all(isinstance(client, Integral) for client in self.which)
        chosen = sorted(set(self.which)) if whole else []
        if b and (not whole or len(chosen) != b or len(self.which) != b or not 0 <= chosen[0] <= chosen[-1] < n):
            raise SettingError(
                f"federation.which needs n_byzantine={b} different clients in [0, {n}), got {list(self.which)}."
            )
        return chosen if b else []

    @property
    def n(self) -> int:
        """Number of updates in a round; of those drawn by "bernoulli", on average."""
        if self.sampling == "groups":
            return sum(self.present)
        return self._present(len(self.honest_ids) + self.n_byzantine, 1)

    @property
    def present(self) -> tuple[int, int]:
        """Numbers of honest and Byzantine clients in a round; on average where they vary."""
        h, b = len(self.honest_ids), self.n_byzantine
        if self._count is None:
            return self._present(h, 1), self._present(b, 0)
        attack = min(round(self._count * b / (h + b)), self._count - 1)
        return self._count - attack, attack

    @property
    def varies(self) -> bool:
        """Whether rounds differ in how many clients attack."""
        return self.sampling != "groups" and self.participation < 1

    def counts(self, rounds: int) -> set[tuple[int, int]]:
        """List the numbers of honest and Byzantine clients that take part together in one of the first rounds."""
        drawn = map(self.participants, range(rounds if self.varies else 0))
        found = {(len(honest), len(byzantine)) for honest, byzantine in drawn if honest or byzantine}
        return found or {self.present}

    def participants(self, index: int) -> tuple[list[int], list[int]]:
        """Who takes part in a round.

        Args:
            index: The round's number, from 0.

        Returns:
            Numbers of the honest clients and of the Byzantine ones, ascending.
        """
        if self.participation == 1:
            return self.honest_ids, self.byzantine_ids
        generator = seeding.generator(self.seed, "participants", index)

        def draw(ids: list[int], many: int) -> list[int]:
            chosen = torch.randperm(len(ids), generator=generator)[:many]
            return [ids[i] for i in chosen.sort().values.tolist()]

        if self.sampling == "groups":
            h, b = self.present
            return draw(self.honest_ids, h), draw(self.byzantine_ids, b)
        everybody = sorted([*self.honest_ids, *self.byzantine_ids])
        if self.sampling == "everybody":
            drawn = set(draw(everybody, self.n))
        else:
            chances = torch.rand(len(everybody), generator=generator, dtype=torch.float64).tolist()
            drawn = {i for i, chance in zip(everybody, chances, strict=True) if chance < self.participation}
        honest, byzantine = ([i for i in ids if i in drawn] for ids in (self.honest_ids, self.byzantine_ids))
        return honest, byzantine

    def _present(self, group: int, least: int) -> int:
        return max(round(self.participation * group), least)

    def weights(self, sizes: list[int], ids: Sequence[int] | None = None) -> Float64[Tensor, " n"]:
        """Share of each client among those present.

        Args:
            sizes: Samples of each of the n_clients, by number.
            ids: Numbers of those present, in the desired order.  None: all, honest ones first.
        """
        ids = [*self.honest_ids, *self.byzantine_ids] if ids is None else ids
        average = sum(sizes) / len(sizes)
        counts = [sizes[i] if i < len(sizes) else average for i in ids]
        shares = torch.tensor(counts if self.data_weights == "samples" else [1.0] * len(ids), dtype=torch.float64)
        return shares / shares.sum()

    def byzantine_share(self, sizes: list[int]) -> float:
        """C_bar, the Byzantine clients' share of all data weights.

        Args:
            sizes: Samples of each of the n_clients, by number.
        """
        return self.weights(sizes)[len(self.honest_ids) :].sum().item()
