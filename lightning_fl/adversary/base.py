"""The adversary: who attacks, and how."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import pytorch_lightning as pl
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.client.base import Client
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError, check_whole
from lightning_fl.federation import Federation
from lightning_fl.ranges import Checked, NonNegativeInt, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.server_oracle import GivenServer, ServerOracle
from lightning_fl.text import many
from lightning_fl.updates.updates import Combination, Updates

Momentum = Literal["own", "none"]
Knowledge = Literal["rule", "updates", "data", "models", "nothing"]
# What a round knows besides the updates; a matrix of these does not.
_OF_A_ROUND = {
    "model": "the global model",
    "client": "what clients compute",
    "byzantine": "the Byzantine clients' samples",
}


@dataclass(frozen=True)
class AttackContext:
    """What an attacker knows besides the honest updates of the round.

    Args:
        model: The global model, which an attacker must not change.
        client: What honest clients compute.
        byzantine: The Byzantine clients' own samples.
        aggregation: What the server would make of n updates (honest ones first), with the clients' true data weights;
            only an adaptive attack asks it.  What the rule draws at random (buckets, columns, noise) is drawn
            differently here than by the server, whose draws no attacker knows; the mini-batches of the server's own
            clients are the same.
        round: Which round it is.
        previous_update: What the rule made of the last round's updates; two successive global models show it to every
            client.  None in the first round.
        honest_ids: Number of each honest client, in the order of the honest updates; who takes part may change from
            round to round.  None: unknown.
    """

    model: nn.Module
    client: Client
    byzantine: ClientBatch
    aggregation: Callable[[Updates], Aggregation]
    round: Round
    previous_update: Float[Tensor, " d"] | None = None
    honest_ids: Sequence[int] | None = None

    def rule(self, updates: Updates) -> Float[Tensor, " d"]:
        """What the server would subtract, before its learning rate."""
        return self.aggregation(updates).update

    def answer(self, updates: Updates) -> Float[Tensor, " d"] | Combination:
        """As ``rule``, or the combination of rows that it is: for an attack that asks many times how far it is off."""
        return self.aggregation(updates).answer

    def trust(self, updates: Updates) -> Float[Tensor, " n"] | None:
        """The trust that the rule would put in each update; None for a coordinate rule."""
        return self.aggregation(updates).trusted

    def trained(self, batch: ClientBatch, momentum: Momentum = "own") -> Float[Tensor, "b d"]:
        """What the Byzantine clients would send if they worked like honest ones.

        Args:
            batch: They and the samples to work on.
            momentum: "own": each has the momentum that honest clients have, if any.  "none": what they compute in
                this round alone.
        """
        client = self.client if momentum == "own" else self.client.without_momentum()
        return client.updates(self.model, batch, self.round).updates

    def generator(self, purpose: str) -> torch.Generator:
        """A generator for the attack's draws in this round."""
        return self.round.generator("adversary", purpose)


class _Alone(AttackContext):
    """What an attacker knows who is given a matrix: some of what `AttackContext` has; the rest is refused."""

    def __init__(self, attack: str, **known: Any):
        self.__dict__.update(known, attack=attack)  # the class is frozen

    def __getattr__(self, name: str) -> Any:
        if name in _OF_A_ROUND:
            raise SettingError(
                f"{self.attack} needs {_OF_A_ROUND[name]}, got a matrix of updates alone; let it attack a run: "
                f"fl.train(..., attack=...)."
            )
        if name == "aggregation":
            raise SettingError(
                f"{self.attack} needs the server's rule, got none; give one, such as rule=fl.aggregator.Median()."
            )
        raise AttributeError(name)


def _ask(rule: Aggregator, server: ServerOracle, updates: Updates) -> Aggregation:
    asked = copy(updates)
    asked.ids = range(updates.n)
    return aggregated(rule, asked, server)


def check_held(data: FederatedDataModule, source: int | None) -> None:
    """Check that some Byzantine client, if there are any, holds samples of the class that is attacked.

    Args:
        data: The run's, loaded and partitioned.
        source: The class.  None: any will do.

    Raises:
        SettingError: If none does: all would be honest.
    """
    held = data.everybody.indices[len(data.federation.honest_ids) :]
    if source is not None and held and not (data.train.targets[torch.cat(list(held))] == source).any():
        raise SettingError(
            f"this attack changes samples of class {source}, got none among those of {len(held)} Byzantine clients; "
            f"set another source, or let supplementary ones hold samples of all classes: federation.byzantine_data=iid."
        )


class Adversary(Checked, pl.Callback, ABC):
    """What Byzantine clients send, found by `FederatedModule` among the trainer's callbacks.

    An attacker may know all of the present (`knows`): every honest update of this round, but no future one.  An attack
    that remembers earlier rounds takes over in ``on_train_batch_end`` what this round taught it, and saves itself with
    ``state_dict`` and ``load_state_dict``.  A further run begins with the state in which the first one found it, unless
    it has a checkpoint.

    The first attributes are what an attack declares; `lightning_fl.contract` holds one that declares nothing to the
    strictest laws.

    Args:
        from_round: First round that is attacked, counted from 0: as many honest ones come before it.
        to_round: Last round that is attacked.  None: the run's last.
        every: Rounds from one attack to the next: from_round, from_round + every, ...

    Note:
        In other rounds Byzantine clients are honest and train on their own data.  An attack that takes these settings
        has ``**window`` among its own and passes it on.

    Raises:
        SettingError: If no round is attacked.
    """

    least_honest: int = 1
    """How many honest updates it needs, such as 2 for a standard deviation."""
    varies_with: Collection[str] = ()
    """What changes what it sends, other than updates and samples: "seed" and "round" if it draws in each round, "seed"
    if once per run, the clients' data "weights" if it asks the rule."""
    searches: bool = False
    """Whether it waits for a GPU more than twice a round, to decide by what it has computed how to go on."""
    finite: bool = True
    """Whether it sends finite numbers only."""
    unsaid: ClassVar[dict[str, Any]] = {
        "from_round": 0,
        "to_round": None,
        "every": 1,
    }  # what says nothing to who reads a description
    from_round: int = 0  # an attack of a user's own may have no window
    to_round: int | None = None
    every: int = 1

    def __init__(self, from_round: NonNegativeInt = 0, to_round: NonNegativeInt | None = None, every: PositiveInt = 1):
        if to_round is not None and to_round < from_round:
            raise SettingError(
                f"{self.spelled()} needs to_round >= from_round, got {to_round} and {from_round}; change one."
            )
        self.from_round = from_round
        self.to_round = to_round
        self.every = every

    knows: Knowledge = "updates"
    """The most that it goes by: "rule", it asks the run's rule about honest updates; "updates", the honest ones;
    "data", samples of its own, on which it trains; "models", the global ones; "nothing" of these."""

    def __call__(
        self,
        honest: Float[Tensor, "h d"],
        n_byzantine: int,
        *,
        rule: Aggregator | None = None,
        weights: Float[Tensor, " h"] | None = None,
        previous_update: Float[Tensor, " d"] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, "b d"]:
        """Forge the updates of a first round from a plain matrix, without a run.

        Args:
            honest: One honest update per row.
            n_byzantine: b, how many updates to forge, at least 1.
            rule: What the server aggregates by, for an attack that asks it.
            weights: Data weight of each honest client, for such an attack; a Byzantine one counts as the average honest
                one.  None: equal.
            previous_update: What the rule made of the round before, for an attack that goes by it.  None: there was no
                such round.
            seed: Seed of what the attack draws.

        Returns:
            One forged update per row; where all are one vector, an expanded view.

        Raises:
            SettingError: If the attack cannot serve that many, or needs more than a matrix, such as a model to train.
        """
        check_whole("n_byzantine", n_byzantine, 1)
        updates = Updates(honest, weights)
        self.check(updates.n, n_byzantine, 1)
        known: dict[str, Any] = {"round": Round(0, 1.0, seed), "previous_update": previous_update}
        if rule is not None:
            known["aggregation"] = partial(_ask, rule, GivenServer(None, seed))
        return self.attack(updates, n_byzantine, _Alone(self.spelled(), **known))

    def check(self, n_honest: int, n_byzantine: int, n_classes: int) -> None:
        """Check the attack's settings before any training.

        Args:
            n_honest: h, how many honest updates a round brings.
            n_byzantine: b, how many are forged, at least 1.
            n_classes: c, the number of classes.

        Raises:
            SettingError: If the attack cannot serve that many.
        """
        if n_honest < self.least_honest:
            raise SettingError(
                f"{self.spelled()} needs at least {self.least_honest} honest updates, got {n_honest}; add clients."
            )

    def check_window(self, federation: Federation, rounds: int) -> None:
        """Check the rounds that are attacked, before any training.

        Args:
            federation: The clients.
            rounds: How many rounds the run has.

        Raises:
            SettingError: If they are none, or Byzantine clients have no data for the others.
        """
        if self.from_round >= rounds:
            raise SettingError(
                f"{self.spelled()} needs a from_round among the run's {many(rounds, 'round')}, from 0, got "
                f"{self.from_round}; lower it or raise trainer.max_steps."
            )
        always = self.from_round == 0 and self.to_round is None and self.every == 1
        if not always and federation.byzantine == "supplement" and federation.byzantine_data is None:
            raise SettingError(
                f"{self.spelled()} needs Byzantine clients with data, to be honest in the other rounds, got "
                f"supplementary ones, who hold none; set federation.byzantine=replacement, or "
                f"federation.byzantine_data to iid or copies."
            )

    def check_client(self, client: Client) -> None:
        """Check that the attackers can do what honest clients do in their own way, before any training.

        Args:
            client: What honest clients compute.

        Raises:
            SettingError: If they cannot.
        """

    def check_data(self, data: FederatedDataModule) -> None:
        """Check that the attack fits the data and their holders, before any training.

        Args:
            data: The run's, loaded and partitioned.

        Raises:
            SettingError: If it does not.
        """

    def note(self, n_honest: int, n_byzantine: int) -> str | None:
        """Say in a line what the settings come to in a round, where they do not show it; by default nothing.

        Args:
            n_honest: h, how many honest updates a round brings.
            n_byzantine: b, how many are forged, at least 1.
        """
        return None

    def observe(self, confusion: Int64[Tensor, "c c"]) -> dict[str, float]:
        """Tell from an evaluation how well the attack does, besides the harm to accuracy; by default nothing.

        Args:
            confusion: Test samples by true class (rows) and predicted class.

        Returns:
            Metrics by name, reported under ``attack/``.
        """
        return {}

    def triggered(self, test: Samples) -> Samples | None:
        """Make the test samples that show whether a backdoor works; by default there is none.

        Args:
            test: The test samples.

        Returns:
            Inputs with the trigger, labelled as the attacker wants, without those whose true label this is.  The share
            of them that the model labels so is reported as ``attack/success_rate``.
        """
        return None

    def attacks_in(self, index: int) -> bool:
        """Whether it attacks in a round, by the round's number from 0.

        >>> from lightning_fl.adversary.ipm import Ipm
        >>> [index for index in range(10) if Ipm(from_round=2, to_round=7, every=3).attacks_in(index)]
        [2, 5]
        """
        first, last = self.from_round, self.to_round
        return index >= first and (last is None or index <= last) and (index - first) % self.every == 0

    def send(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Any:
        """Give what the Byzantine clients send: what is forged, or their honest work in a round that is not attacked.

        Whoever asks checks it, as the attack may be a user's own.

        Args:
            honest: The h honest updates.
            n_byzantine: b, how many updates to give, at least 1.
            context: What else the attacker knows.
        """
        if self.attacks_in(context.round.index):
            return self.attack(honest, n_byzantine, context)
        self.watch(honest, context)
        return context.trained(context.byzantine)

    def watch(self, honest: Updates, context: AttackContext) -> None:
        """Learn from a round that is not attacked; by default nothing.

        Args:
            honest: The h honest updates.
            context: What else the attacker knows.
        """

    @abstractmethod
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Forge the updates of one round.

        Args:
            honest: The h honest updates.
            n_byzantine: b, how many updates to forge, at least 1.
            context: What else the attacker knows.

        Returns:
            One forged update per row; an expanded view is fine.
        """
