"""Clients of Flower that lie, so that both sides of an app can be tested."""

from collections.abc import Callable, Collection, Iterable
from copy import copy, deepcopy
from dataclasses import dataclass
from io import BytesIO
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise ImportError('lightning_fl.flower needs flwr, got none; pip install "lightning-fl[flower]".') from error

from lightning_fl.adversary.base import Adversary, AttackContext, Momentum
from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.client.base import Client
from lightning_fl.client.gradient import Gradient
from lightning_fl.errors import SettingError, check_instance, check_whole
from lightning_fl.flower.replies import Layout, at_rate, check_rate
from lightning_fl.network.parameters import trainable
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.server_oracle import GivenServer
from lightning_fl.updates.updates import Updates

_MEMORY = "lightning_fl.liar"


class Liar:
    """Play an attack in the place of an honest client: a mod of a ``ClientApp``, which trains as ever beneath it.

    The app's model w_i makes the honest update x_i = (w - w_i) / eta, of the attack's x the reply holds w - eta x.
    Evaluations, and the rounds that the attack leaves out (``from_round``, ``every``), pass as they are.  What the
    attack remembers is kept in Flower's context, apart for each node.

    Args:
        adversary: An attack that goes by the client's own data, the global models, or nothing.
        learning_rate: eta, the clients' rate; see `RobustStrategy`.
        model: The app's model, for attacks that train on changed samples; it is copied.
        samples: Gives the client's samples, for such attacks.
        client: How clients train, for such attacks.  None: one gradient of all samples.
        claim: What ``num-examples`` in the reply is multiplied by.
        seed: Seed of the attack's draws.  Liars of one seed draw the same.

    Raises:
        SettingError: If the attack needs what the client does not know, or a number is out of range.

    Note:
        A liar knows of no other: an attack that goes by how many there are, as model replacement, is told its factor.

    ``app = ClientApp(mods=[Liar(fl.adversary.BitFlip(factor=3.0))])`` sends three times the way back.
    """

    def __init__(
        self,
        adversary: Adversary,
        *,
        learning_rate: float = 1.0,
        model: nn.Module | None = None,
        samples: Callable[[Context], Samples] | None = None,
        client: Client | None = None,
        claim: float = 1.0,
        seed: int = 0,
    ):
        check_instance("adversary", adversary, Adversary, "fl.adversary.BitFlip()")
        if adversary.knows in ("updates", "rule"):
            raise SettingError(
                f"{adversary.spelled()} needs the other clients' updates, which a client of Flower does not see; let a "
                f"LyingGrid play it at the server, or take an attack on its own data, such as fl.adversary.BitFlip()."
            )
        check_rate(learning_rate)
        if not (hasattr(claim, "__float__") and 0 <= claim < inf):
            raise SettingError(f"claim must be a number of at least 0 and finite, got {claim!r}.")
        if (samples is None) != (model is None):
            raise SettingError("a liar trains a model on its samples, got one of them; give both, or neither.")
        self.adversary = adversary
        self.learning_rate = learning_rate
        self.model = None if model is None else deepcopy(model).train()
        self.samples = samples
        self.client = at_rate(client or Gradient(), learning_rate)
        self.claim = claim
        self.seed = seed
        if samples is None and adversary.knows == "data":  # now, not in a process that only logs what it lacks
            toy = nn.ParameterList([nn.Parameter(torch.zeros(2))])
            self._forge(deepcopy(adversary), toy, _no_samples(adversary), adversary.from_round, torch.zeros(1, 2), None)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Let the app work, and change what it replies."""
        reply = call_next(message, context)
        if reply.has_error() or not message.metadata.message_type.startswith("train"):
            return reply
        (sent,) = message.content.array_records.values()
        (own,) = reply.content.array_records.values()
        layout = Layout.of(sent)
        start = _numbers(sent, layout)
        update = torch.from_numpy((start - _numbers(own, layout)) / self.learning_rate)[None]

        adversary = deepcopy(self.adversary)  # in a simulation several nodes share this object
        index, previous = _round(message.content) - 1, None
        if _MEMORY in context.state:
            stored = torch.load(BytesIO(context.state[_MEMORY]["memory"]), weights_only=True)
            adversary.load_state_dict(stored["attack"])
            previous = _moved(stored["round"], stored["model"].numpy(), index, start, self.learning_rate)
        lie = self._forge(adversary, self._at(sent, layout), self._batch(context), index, update, previous)[0]
        adversary.on_train_batch_end(None, None, None, None, index)  # type: ignore[arg-type]
        file = BytesIO()
        memory = {"attack": adversary.state_dict(), "round": index, "model": torch.from_numpy(start)}
        torch.save(memory, file)
        context.state[_MEMORY] = ConfigRecord({"memory": file.getvalue()})

        _replace(reply, layout, start, self.learning_rate * lie.numpy())
        for metrics in reply.content.metric_records.values():
            if "num-examples" in metrics:
                metrics["num-examples"] = type(metrics["num-examples"])(metrics["num-examples"] * self.claim)
        return reply

    def _forge(
        self,
        adversary: Adversary,
        model: nn.Module,
        batch: ClientBatch,
        index: int,
        own: Float[Tensor, "1 d"],
        previous: Float[Tensor, " d"] | None,
    ) -> Float[Tensor, "1 d"]:
        this_round = Round(index, self.learning_rate, self.seed)
        known = _Known(model, self.client, batch, _refuse, this_round, previous, own=own)
        forged: Tensor = adversary.send(Updates(own), 1, known)
        return forged

    def _at(self, sent: ArrayRecord, layout: Layout) -> nn.Module:
        """The global model."""
        arrays = sent.to_torch_state_dict()
        if self.model is None:
            return nn.ParameterList(nn.Parameter(arrays[name]) for name in layout.trained)
        if list(trainable(self.model)) != list(layout.trained):
            raise SettingError(
                f"the model of a liar must have the app's trained arrays, {', '.join(layout.trained)}, got "
                f"{', '.join(trainable(self.model))}; give the app's model."
            )
        self.model.load_state_dict(arrays)
        return self.model

    def _batch(self, context: Context) -> ClientBatch:
        if self.samples is None:
            return _no_samples(self.adversary)
        samples = self.samples(context)
        return ClientBatch(samples, [torch.arange(len(samples))], [int(context.node_config.get("partition-id", 0))])


class LyingGrid:
    """A grid, some of whose nodes know what all others reply: for tests, with any strategy.

    ``strategy.start(LyingGrid(grid, fl.adversary.Ipm(), 4), ...)`` in the ``ServerApp``; the clients are honest, and
    what these nodes trained is replaced.

    Args:
        grid: Flower's.
        adversary: An attack that goes by others' updates, or by nothing.
        nodes: Who lies: the ids of nodes, or how many (0: nobody), those with the largest ids.
        rule: What the server aggregates by, for attacks that ask it.
        learning_rate: eta, the clients' rate; see `RobustStrategy`.
        seed: Seed of the attack's draws.

    Raises:
        SettingError: If the attack trains on data of its own, or asks a rule that is not given, or a number is out of
            range; in a round, if there are fewer nodes than liars, or too few honest ones reply.
    """

    def __init__(
        self,
        grid: Grid,
        adversary: Adversary,
        nodes: int | Collection[int],
        *,
        rule: Aggregator | None = None,
        learning_rate: float = 1.0,
        seed: int = 0,
    ):
        check_instance("adversary", adversary, Adversary, "fl.adversary.Ipm()")
        if adversary.knows == "data":
            raise SettingError(f"{adversary.spelled()} needs the client's own data; let the mod Liar play it.")
        if adversary.knows == "rule" and rule is None:
            raise SettingError(f"{adversary.spelled()} needs the server's rule, got none; give rule=.")
        check_rate(learning_rate)
        if not isinstance(nodes, Collection):
            check_whole("nodes", nodes, 0)
        self._grid, self._adversary, self._nodes = grid, deepcopy(adversary), nodes
        self._rule, self._rate, self._seed = rule, learning_rate, seed
        self._before: tuple[int, np.ndarray] | None = None  # the last round and its model

    def send_and_receive(self, messages: Iterable[Message], **settings: Any) -> Iterable[Message]:
        """Send, and let the liars among those who trained see what came back; see Flower's ``Grid``."""
        asked = list(messages)
        ids = sorted(self._grid.get_node_ids())
        if not isinstance(self._nodes, Collection):
            if self._nodes > len(ids):
                raise SettingError(f"nodes must be at most the number of nodes, {len(ids)}, got {self._nodes}.")
            self._nodes = ids[len(ids) - int(self._nodes) :]
        elif self._nodes and not {*self._nodes} & {*ids}:
            raise SettingError(f"nodes must be ids of the grid's nodes, {ids}, got {[*self._nodes]}.")
        replies = list(self._grid.send_and_receive(asked, **settings))
        trained = [reply for reply in replies if not reply.has_error()]
        if not asked or not asked[0].metadata.message_type.startswith("train"):
            return replies
        (sent,) = asked[0].content.array_records.values()
        layout = Layout.of(sent)
        start, index = _numbers(sent, layout), _round(asked[0].content) - 1
        liars = [reply for reply in trained if reply.metadata.src_node_id in self._nodes]
        others = [reply for reply in trained if reply not in liars]
        rows = [start - _numbers(arrays, layout) for reply in others for arrays in reply.content.array_records.values()]
        self._adversary.check(len(rows), max(len(liars), 1), 1)
        who = [reply.metadata.src_node_id for reply in [*others, *liars]]
        honest = Updates(torch.from_numpy(np.stack(rows) / self._rate), ids=who[: len(rows)])
        model = nn.ParameterList(nn.Parameter(value) for value in torch.from_numpy(start)[None])
        server, this_round = GivenServer(None), Round(index, self._rate, self._seed)
        server.round = this_round

        def ask(updates: Updates) -> Aggregation:
            assert self._rule is not None
            asked = copy(updates)
            asked.ids = who
            with server.guessed():
                return aggregated(self._rule, asked, server)

        previous = None if self._before is None else _moved(*self._before, index, start, self._rate)
        self._before = index, start
        nobody = _no_samples(self._adversary)
        known = _Known(model, Gradient(), nobody, ask, this_round, previous, who[: len(rows)])
        if liars and self._adversary.attacks_in(index):
            lies = self._adversary.attack(honest, len(liars), known)
            for reply, lie in zip(liars, lies, strict=True):
                _replace(reply, layout, start, self._rate * lie.numpy())
        else:
            self._adversary.watch(honest, known)
        self._adversary.on_train_batch_end(None, None, None, None, index)  # type: ignore[arg-type]
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


@dataclass(frozen=True)
class _Known(AttackContext):
    """What a client knows; honest work is what the app did."""

    own: Tensor | None = None

    def trained(self, batch: ClientBatch, momentum: Momentum = "own") -> Float[Tensor, "1 d"]:
        if batch is self.byzantine:
            assert self.own is not None
            return self.own
        return super().trained(batch, momentum)


class _NoSamples:
    def __init__(self, adversary: str):
        self.adversary = adversary

    def __getattr__(self, name: str) -> Any:
        raise SettingError(
            f"{self.adversary} needs the client's samples, got none; give model, samples and client to the liar."
        )


def _no_samples(adversary: Adversary) -> Any:
    return _NoSamples(adversary.spelled())


def _moved(before: int, old: np.ndarray, index: int, new: np.ndarray, rate: float) -> Tensor | None:
    """What the rule made of the last round's updates, as two successive global models show it; else None."""
    return torch.from_numpy((old - new) / rate) if before == index - 1 else None


def _refuse(updates: Updates) -> Any:
    raise SettingError("a client of Flower does not know the server's rule; let this attack a run: fl.train.")


def _round(content: RecordDict) -> int:
    """The number that Flower's strategies send; 1 from one that sends none."""
    numbers = [record["server-round"] for record in content.config_records.values() if "server-round" in record]
    return int(numbers[0]) if numbers else 1


def _numbers(arrays: ArrayRecord, layout: Layout) -> np.ndarray:
    """A model's numbers that are trained."""
    numbers = np.empty(layout.count(layout.trained), layout.dtype)
    layout.write(arrays, numbers, np.empty(layout.count(layout.statistics), layout.dtype))
    return numbers


def _replace(reply: Message, layout: Layout, start: np.ndarray, change: np.ndarray) -> None:
    """Let a reply hold the global model minus a change, of any size."""
    ((key, own),) = reply.content.array_records.items()
    arrays, at = dict(own), 0
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = start - change
        for name in layout.trained:
            size = layout.count([name])
            arrays[name] = Array(numbers[at : at + size].reshape(layout.shapes[name]).astype(own[name].dtype))
            at += size
    reply.content[key] = ArrayRecord(arrays)
