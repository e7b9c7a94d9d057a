"""What the server does with the updates of a round."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, Protocol, runtime_checkable

import pytorch_lightning as pl
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked
from lightning_fl.server_oracle import GivenServer, ServerOracle
from lightning_fl.updates.rows import check_shape
from lightning_fl.updates.updates import Combination, Updates

ServerNeed = Literal["samples", "updates"]
Motion = str  # mypy takes no tuple of one for a collection of literals
MOTIONS: tuple[Motion, ...] = ("shift", "scale", "rotation")


@runtime_checkable
class Clients(Protocol):
    """Who takes part in a run, as far as a rule may ask; `lightning_fl.federation.Federation` says it."""

    @property
    def honest_ids(self) -> Sequence[int]:
        """Numbers of the honest clients."""

    @property
    def byzantine_ids(self) -> Sequence[int]:
        """Numbers of the Byzantine clients."""

    @property
    def n_byzantine(self) -> int:
        """How many attack."""

    @property
    def participation(self) -> float:
        """Share of the clients that take part in a round."""


@dataclass(frozen=True)
class Aggregation:
    """What a rule made of one round.

    Args:
        answer: (d,) what the server subtracts, before its learning rate, or the combination of rows that it is.
        weights: (n,) a_i with update = sum_i a_i x_i (and what the server's own rows add); None for a coordinate rule.
        diagnostics: Numbers worth a curve, logged under the rule's name.
        trust: (n,) how far each client is trusted, where weights also undo the length of what it sent; None: as weights
            say.
        label_distributions: (n, c) what share of each class the rule believes each client to hold, where it does.
        suspicion: (n,) how suspicious each client is, of a rule that says who lies; NaN: not judged.  None: whom it
            trusts less is more suspicious, and whom it does not trust at all is accused.
        accused: (n,) whom such a rule takes for a liar.  None: it says nothing yet.
    """

    answer: Float[Tensor, " d"] | Combination
    weights: Float[Tensor, " n"] | None = None
    diagnostics: dict[str, int | float] = field(default_factory=dict)
    trust: Float[Tensor, " n"] | None = None
    label_distributions: Float[Tensor, "n c"] | None = None
    suspicion: Float[Tensor, " n"] | None = None
    accused: Bool[Tensor, " n"] | None = None

    @property
    def update(self) -> Float[Tensor, " d"]:
        """(d,) what the server subtracts."""
        return self.answer.vector if isinstance(self.answer, Combination) else self.answer

    @property
    def trusted(self) -> Float[Tensor, " n"] | None:
        """(n,) how far each client is trusted; None if the rule says nothing of single clients."""
        return self.weights if self.trust is None else self.trust


class Aggregator(Checked, pl.Callback, ABC):
    """The server's rule R^{n x d} -> R^d, found by `FederatedModule` among the trainer's callbacks.

    Ranges of settings are annotations of its constructor's arguments (`lightning_fl.ranges`).  What it promises and
    what it needs are declared on its class, ``robust = False``; `lightning_fl.contract` holds it to the strict law
    where it declares nothing.

    ``aggregate`` returns a value and changes nothing that a later call would see: an adaptive adversary tries the rule
    several times before the round's real call, which is the last one.  A rule that remembers rounds takes over in
    ``on_train_batch_end`` what the last call left, and saves itself with ``state_dict`` and ``load_state_dict``.  A
    further run begins with the state in which the first one found the rule, unless it has a checkpoint.
    """

    least: str = "1"
    """The fewest updates that a round may bring: a sum of the rule's settings, c and numbers, such as "2f + 1"."""

    @abstractmethod
    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round.

        Args:
            updates: The n rows of this round; honest ones first, but a rule must not use that.
            server: What the server can compute by itself.
        """

    def __call__(
        self,
        updates: Float[Tensor, "n d"],
        server: Float[Tensor, "c d"] | Float[Tensor, " d"] | ServerOracle | None = None,
        *,
        weights: Float[Tensor, " n"] | None = None,
        ids: Sequence[int] | None = None,
        seed: int = 0,
    ) -> Float[Tensor, " d"]:
        """Aggregate a plain matrix, without a run; a rule with a memory stays in its round until `end_round`.

        Args:
            updates: One update per row.
            server: What the rule asks of the server (`needs_server`): its class updates (c, d), its update (d,), or
                whatever can compute losses.
            weights: Data weight of each client, at least 0 with a positive sum; not all rules use them.  None: equal.
            ids: Number of each row's client, for a rule that remembers clients.  None: the row's.
            seed: Seed of what the rule draws, another one each round.

        Returns:
            The aggregated update.

        Raises:
            SettingError: If shapes or settings do not fit, or what the rule asks of the server was not given.
            DivergedError: If no update is left that the rule can use.
        """
        rows = Updates(updates, weights, range(len(updates)) if ids is None else ids)
        if ids is not None and not len(set(ids)) == len(ids) == rows.n:
            raise SettingError(f"ids must be {rows.n} different numbers, one per update, got {list(ids)}.")
        oracle = server if isinstance(server, ServerOracle) else GivenServer(server, seed)
        self.check(rows.n, oracle.n_classes)
        return aggregated(self, rows, oracle).update

    def end_round(self, number: int = 0) -> None:
        """End a round, numbered from 0, of a loop of your own: a rule with a memory goes on from its last call."""
        self.on_train_batch_end(None, None, None, None, number)  # type: ignore[arg-type]

    def least_n(self, n_classes: int) -> int:
        """Say how many updates a round must bring: the value of `least`; see `check`."""
        return _value(self.least, self._settings_of_least(n_classes))

    def check(self, n: int, n_classes: int) -> None:
        """Check the rule's settings before any training.

        Args:
            n: How many updates a round brings.
            n_classes: c, the number of classes, each with a virtual client at the server.

        Raises:
            SettingError: If the rule cannot serve that many.
        """
        check_least(self.spelled(), self.least, n, **self._settings_of_least(n_classes))

    def _settings_of_least(self, n_classes: int) -> dict[str, int]:
        return {name: n_classes if name == "c" else getattr(self, name) for _, name in _terms(self.least) if name}

    def check_clients(self, federation: Clients) -> None:
        """Check that the rule fits who takes part in a run, before any training.

        Raises:
            SettingError: If it does not.
        """

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Say where the rule runs beyond what is proven of it.

        Args:
            n: See `check`.
            n_classes: See `check`.

        Returns:
            A sentence such as "no guarantee: needs n >= 2f + 3, has 7 updates for f = 3"; None if its bound on f holds
            or it has none.
        """
        return None

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Give theory's bound of the rule's distance from the honest mean; see `lightning_fl.theory.robustness`.

        Args:
            n: How many updates a round brings.
            b: How many of them are Byzantine; a rule told an f below this promises nothing.
            equal: Whether the data weights are.

        Returns:
            kappa; None where no bound holds or none is known.
        """
        return None

    def distances(
        self, updates: Updates, server: ServerOracle
    ) -> Callable[[Float[Tensor, "q n k"]], Float64[Tensor, "q n"]]:
        """Say how far the rows are from the rule's answers where it sees some coordinates only; see `Gas`.

        Args:
            updates: The n rows of this round.
            server: See `aggregate`.

        Returns:
            A function of the rows' columns in q groups of k coordinates; a row with NaN or inf is NaN in all of them.
        """

        def one_by_one(groups: Float[Tensor, "q n k"]) -> Float64[Tensor, "q n"]:
            answers = (aggregated(self, Updates(x, updates.data_weights, updates.ids), server).update for x in groups)
            away = (x - answer for x, answer in zip(groups, answers, strict=True))
            return torch.stack([torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64) for rows in away])

        return one_by_one

    @property
    def sums(self) -> bool:
        """Whether clients upload parts of a sum, in place of which no mean can stand."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether the rule takes something over from one round into the next."""
        return type(self).on_train_batch_end is not pl.Callback.on_train_batch_end

    @property
    def needs_client(self) -> int | None:
        """Which client must take part in every round, by number; None: no certain one."""
        return None

    # Laws.  A rule that lacks one, or promises one more, says so in its class: ``robust = False``.

    @property
    def robust(self) -> bool:
        """Whether any f rows leave the result finite and within ten times the longest honest row; see `guarantee`."""
        return True

    @property
    def order_matters(self) -> bool:
        """Whether another order of the same clients may give another result, ties aside."""
        return False

    @property
    def moves_with(self) -> Collection[Motion]:
        """Which motions of all rows, and of the server's, move the result alike: shift, scale, rotation."""
        return MOTIONS

    @property
    def exact(self) -> bool:
        """Whether n - f equal rows are the result, as being (f, kappa)-robust with any kappa implies."""
        return False

    @property
    def reads_updates(self) -> bool:
        """Whether the result depends on what clients send."""
        return True

    @property
    def searches(self) -> bool:
        """Whether the rule waits for a GPU more than twice a round, to decide by what it has computed how to go on."""
        return False

    @property
    def needs_ids(self) -> bool:
        """Whether the rule must know which client sent which row."""
        return False

    @property
    def recalls_absent(self) -> bool:
        """Whether clients count that are not among the rows, by what they sent in earlier rounds."""
        return False

    @property
    def needs_model(self) -> bool:
        """Whether the rule compares updates with the whole global model, so that it must see all their coordinates."""
        return False

    @property
    def needs_layout(self) -> bool:
        """Whether the rule goes by the tensors of the model (`Updates.layout`), so that it must see all of them."""
        return False

    @property
    def needs_server(self) -> ServerNeed | None:
        """What the rule asks of the server's data, so that a run without it is refused before it starts.

        "samples": losses or gradients on them.  "updates": what virtual clients that hold them would send, so that a
        client must be able to compute without memory.
        """
        return None


class Weighting(Aggregator):
    """A rule of the form sum_i a_i x_i."""

    @abstractmethod
    def weights(self, updates: Updates, server: ServerOracle) -> Float[Tensor, " n"]:
        """Weigh the rows of one round; see `aggregate` for the arguments."""

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Weigh and combine one round; see the base class."""
        weights = self.weights(updates, server)
        check_shape(f"the result of {type(self).__name__}.weights", weights, updates.n)
        return Aggregation(updates.combination(weights), weights)


def aggregated(rule: Aggregator, updates: Updates, server: ServerOracle) -> Aggregation:
    """Ask a rule, maybe one of a user's own, about one round; see `Aggregator.aggregate`.

    Raises:
        SettingError: If it returns anything but an `Aggregation` whose answer has the updates' length, and what it says
            of clients one number per update; or if it needs to know whose the rows are, and nobody says.
    """
    if rule.needs_ids and updates.ids is None:
        raise SettingError(
            f"{rule.spelled()} needs their numbers to tell clients apart, got rows that are not single clients; use it "
            f"by itself, without buckets."
        )
    found, who = rule.aggregate(updates, server), f"{type(rule).__name__}.aggregate"
    if not isinstance(found, Aggregation):
        raise SettingError(f"{who} must return an Aggregation, got {type(found).__name__}.")
    if not isinstance(found.answer, Combination):
        check_shape(f"the answer of {who}", found.answer, updates.d)
    for name in ("weights", "trust", "suspicion", "accused"):
        if (each := getattr(found, name)) is not None:
            check_shape(f"the {name} of {who}", each, updates.n)
    if found.label_distributions is not None:
        check_shape(f"the label_distributions of {who}", found.label_distributions, updates.n, server.n_classes)
    if not isinstance(found.diagnostics, dict):
        raise SettingError(f"the diagnostics of {who} must be a dict, got {type(found.diagnostics).__name__}.")
    for name, value in found.diagnostics.items():
        if not isinstance(value, Real) and getattr(value, "shape", None) != ():
            raise SettingError(f"the diagnostics of {who} must be numbers, got {type(value).__name__} for {name}.")
    return found


def check_least(rule: str, least: str, n: int, **settings: int) -> None:
    """Check that a round brings enough updates.

    Args:
        rule: Name of the rule, for the error.
        least: See `Aggregator.least`.
        n: How many updates a round brings.
        settings: What `least` names.

    Raises:
        SettingError: If it does not, or a setting is negative.
    """
    if n >= _value(least, settings) and all(value >= 0 for value in settings.values()):
        return
    own = [name for name in settings if name != "c"]
    ranges, got = [f"{name} >= 0" for name in own], [f"{name}={value}" for name, value in {"n": n, **settings}.items()]
    raise SettingError(
        f"{rule} needs {' and '.join([*ranges, f'n >= {least}'])} updates, got {', '.join(got[:-1])}"
        f"{' and ' * (len(got) > 1)}{got[-1]}; {'change ' * bool(own)}{' or '.join([*own, 'add clients'])}."
    )


def _terms(least: str) -> list[tuple[int, str]]:
    """Read a sum as pairs of factor and setting.

    >>> _terms("2f + c + 3")
    [(2, 'f'), (1, 'c'), (3, '')]
    """
    found = re.findall(r"(\d*)([a-z_]*)(?: [+] |$)", least)
    return [(int(factor or 1), name) for factor, name in found if factor or name]


def _value(least: str, settings: dict[str, int]) -> int:
    return sum(factor * settings[name] if name else factor for factor, name in _terms(least))
