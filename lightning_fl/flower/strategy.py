"""A Flower strategy from any rule: what real clients send is aggregated as what simulated ones compute."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext, suppress
from copy import deepcopy
from functools import partial
from hashlib import sha256
from inspect import signature
from itertools import zip_longest
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg, Result
except ImportError as error:
    raise ImportError('lightning_fl.flower needs flwr, got none; pip install "lightning-fl[flower]".') from error

from lightning_fl import files, seeding
from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.guarantee import tolerated
from lightning_fl.aggregator.wrapper import check_hooks
from lightning_fl.arguments import settings as settings_of
from lightning_fl.audit.kept import Keep, keep_round
from lightning_fl.checks import check_model, check_optimizer, check_server_data, refuse_hidden_state
from lightning_fl.client.base import Client
from lightning_fl.client.gradient import Gradient
from lightning_fl.errors import DataError, DivergedError, SettingError, check_choice, check_instance, check_whole
from lightning_fl.flower.replies import Answers, Layout, answering, at_rate, check_rate, gather, median_metrics
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.module import begin_anew
from lightning_fl.network.parameters import flatten, trainable, unflatten
from lightning_fl.round import Round
from lightning_fl.run.assemble import make
from lightning_fl.run.config import check_choices, compose
from lightning_fl.run.lock import BusyError, held
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.text import meant
from lightning_fl.updates.layout import layout_of
from lightning_fl.updates.updates import Updates

FILE = "strategy.pt"
NoGuarantee = Literal["warn", "stop"]
_LOG = logging.getLogger("flwr")


class RobustStrategy(FedAvg):
    """Aggregate what clients train by a robust rule, and step by a server's optimizer.

    What a client sends back, w_i, makes the update x_i = (w - w_i) / eta, with w as it was sent to the clients.  The
    server subtracts what the rule makes of them, at a rate of eta unless ``server`` says otherwise: then plain averages
    are FedAvg.

    Nothing that a client sends stops a round.  A reply of NaN, of other names or shapes, or that differs from another
    reply of the same node in the same round counts as one of the rule's f Byzantine rows; late replies are left out.
    Rows are sorted by node id, so the order of arrival changes no bit.  A round that brings fewer updates than the rule
    needs (BOBA: f > n - c), or after which the model would not be finite, is skipped: the model, the optimizer and the
    rule's memory stay as they were.

    Only floating-point arrays are trained.  Those named ``running_mean`` and ``running_var``, the statistics of torch's
    normalising layers, are no update: rule and optimizer do not see them, and the model takes each one's median over
    the clients.  A reply with a variance below 0 does not count.  The arrays carry names alone, so statistics by other
    names must not be among them.  A loss that is not finite where the server evaluates (``evaluate_fn``) stops the run.

    The metrics of a round hold ``trust/NODE``, each node's weight if the rule is a weighting; ``refused/NODE`` of those
    whose reply did not count; ``excluded/NODE`` of those who are not asked any more; ``round/updates``,
    ``round/absent``, ``round/skipped``, ``round/no_guarantee`` and ``rule/NAME``, the rule's own numbers.  Beside them,
    the median over clients of each metric that the clients report.

    Args:
        rule: Any rule, as an object or by the name of its configuration, such as "nnm_trimmed_mean".
        server: Makes the server's optimizer from the model's parameters.  None: SGD at a rate of ``learning_rate``.
        f: Byzantine clients that a rule given by name tolerates.
        learning_rate: eta, the clients' rate, above 0: it puts updates into the unit of a gradient, in which the
            settings of rules are given here.  1: an update is the difference of the models.
        model: A module whose trainable parameters are the arrays, for rules that compute at the server; it is copied.
        samples: The server's samples, some of each class, for such rules.
        client: What the clients do; the server's virtual clients do the same (BOBA's class updates), at a rate of eta
            unless the client has its own.  None: one gradient of all samples.
        most_examples: None: all clients weigh the same, whatever they claim.  A number: a client weighs what its metric
            ``num-examples`` claims, but no more than this, which an honest client may hold.
        seed: Seed of the rule's draws.
        folder: Where the strategy saves itself after each round; another process that starts with the same folder goes
            on from there.  A round counts once its update is saved; if the server is killed before the clients have
            evaluated it, they do so after the restart.  None: nothing is saved.
        keep: What else of each round is written into the folder, for ``lightning-fl audit``.  "gram": the inner
            products between updates, (n, n) numbers that tell far less than these.  "updates": the updates.  None:
            nothing.
        exclude_after: Rounds in a row in which a node's reply did not count or had weight 0, after which it is asked no
            more; rounds without it, and skipped ones, do not count.  As many stay as a round needs, and no more than
            the f that the rule has are excluded; one that chooses few clients, such as Krum, soon excludes honest ones.
            None: nobody is excluded.
        on_no_guarantee: What happens in a round whose n and f are beyond what is proven of the rule.  "warn": the log
            says so.  "stop": the run stops before the step.
        settings: Settings of Flower's ``FedAvg``.  ``min_train_nodes`` and ``min_available_nodes`` are by default as
            many as the rule needs, so a run waits for them.

    Raises:
        SettingError: If settings are out of range, do not fit each other or the rule.

    Note:
        Flower gives a client that joins again another node id, under which nothing is known of it.
    """

    def __init__(
        self,
        rule: Aggregator | str,
        server: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        f: int | None = None,
        *,
        learning_rate: float = 1.0,
        model: nn.Module | None = None,
        samples: Samples | None = None,
        client: Client | None = None,
        most_examples: int | None = None,
        seed: int = 0,
        folder: str | Path | None = None,
        keep: Keep | None = None,
        exclude_after: int | None = None,
        on_no_guarantee: NoGuarantee = "warn",
        **settings: Any,
    ):
        known = {*signature(RobustStrategy).parameters, *signature(FedAvg).parameters} - {"settings"}
        for name in settings.keys() - known:
            own = " A rule's own settings go with it: RobustStrategy(fl.aggregator.CentredClipping(radius=0.5))."
            raise SettingError(f"RobustStrategy has no setting {name}{meant(name, known)}{own}")
        check_rate(learning_rate)
        if most_examples is not None:  # None: equal weights
            check_whole("most_examples", most_examples, 1)
        for name, value, needed, example in [
            ("model", model, nn.Module, "net()"),
            ("samples", samples, Samples, "fl.Samples(x, y, n_classes)"),
            ("client", client, Client, "fl.client.Gradient()"),
        ]:
            if value is not None:
                check_instance(name, value, needed, example)
        if samples is not None and model is None:
            raise SettingError("the server trains a model on its samples, got none; give model as well.")
        if server is not None and not callable(server):
            raise SettingError(f"server must be a class such as torch.optim.SGD, got {server!r}.")
        self.rule = _rule(rule, f)
        self.client = Gradient() if client is None else client
        check_server_data(
            self.rule, self.client, 0 if samples is None else len(samples), "give model, samples and client"
        )
        self.learning_rate = float(learning_rate)
        self.make_server = partial(SGD, lr=learning_rate) if server is None else server
        check_optimizer(self.make_server)
        if model is not None and samples is not None:
            refuse_hidden_state(model)
        self.model = None if model is None else deepcopy(model).train()  # dropout is part of what clients do
        if self.model is not None and samples is not None:
            check_model(self.model, self.client, samples)
        self.client = at_rate(self.client, self.learning_rate)  # the clients', not the server's
        self.classes = _classes(samples)
        self.n_classes = 1 if samples is None else samples.n_classes
        self._at_server = {}  # with what rules that need the server compute there
        if self.rule.needs_server:
            self._at_server = {
                "client": settings_of(self.client),
                "samples": _digest(self.classes.samples),
                "model": str(self.model),
            }
        self.most_examples = most_examples
        self.seed = seed
        self.folder = None if folder is None else Path(folder)
        if keep is not None:
            check_choice("keep", keep, get_args(Keep))
            if folder is None:
                raise SettingError(f"keep={keep!r} needs a folder, got none; give folder as well.")
        self.keep = keep
        if exclude_after is not None:
            check_whole("exclude_after", exclude_after, 1)
        self.exclude_after = exclude_after
        check_choice("on_no_guarantee", on_no_guarantee, get_args(NoGuarantee))
        self.on_no_guarantee = on_no_guarantee
        self._least = least = self.rule.least_n(self.n_classes)
        self.rule.check(least, self.n_classes)
        settings = {"min_train_nodes": max(least, 2), "min_available_nodes": max(least, 2)} | settings
        for name in ("min_train_nodes", "min_available_nodes"):
            check_whole(name, settings[name], 0)
        if settings["min_train_nodes"] < least and settings.get("fraction_train", 1) > 0:
            raise SettingError(
                f"{type(self.rule).__name__} needs at least {least} updates, got "
                f"min_train_nodes={settings['min_train_nodes']}; leave it out, or lower f."
            )
        for kind in ("train", "evaluate"):
            settings.setdefault(f"{kind}_metrics_aggr_fn", median_metrics)
        super().__init__(**settings)
        self._forget()

    def _forget(self) -> None:
        """Begin as if nothing had been run."""
        begin_anew(self.rule)
        self._layout: Layout | None = None
        self._statistics: list[Tensor] = []
        self._asked: list[int] = []
        self._rejected: dict[int, int] = {}  # by node, in how many rounds in a row
        self._excluded: list[int] = []
        self._before = 0  # rounds of earlier processes
        # None: nobody measured anything
        self._history: dict[str, dict[int, dict[str, Any] | None]] = {"train": {}, "evaluate": {}, "server": {}}

    # What Flower calls

    def summary(self) -> None:
        """Log the rule and what it needs, before Flower's own settings."""
        _LOG.info("\t├──> Rule: %s, for at least %d clients per round", type(self.rule).__name__, self._least)
        warning = self.rule.guarantee(self.min_train_nodes, self.n_classes)
        if warning is not None:
            _LOG.info("\t│\t└── With %d clients: %s", self.min_train_nodes, warning)
        super().summary()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds, or those that are left of a run that was saved; see Flower's ``Strategy.start``.

        Args:
            grid: As there, like the others.
            initial_arrays: The initial model; a saved one replaces it.
            num_rounds: Number of rounds of the whole run, those before a restart included.
            timeout: Seconds after which a client that has not replied takes no part in a round.
            train_config: Sent to clients that train.
            evaluate_config: Sent to clients that evaluate.
            evaluate_fn: Evaluates at the server.

        Returns:
            The final model and the metrics of all rounds.

        Raises:
            SettingError: If the model does not suit the rule, or the folder is another run's or in use.
            DataError: If what the folder holds cannot be read.
            DivergedError: If ``evaluate_fn`` measures a loss that is not finite.
        """
        try:
            with nullcontext() if self.folder is None else held(self.folder):
                self._forget()
                self._prepare(initial_arrays)
                self._load()
                arrays = self._arrays()
                if (
                    self._before and self._before not in self._history["evaluate"]
                ):  # killed after the round's first save
                    config = ConfigRecord() if evaluate_config is None else evaluate_config
                    messages = self.configure_evaluate(0, arrays, config, grid)
                    self.aggregate_evaluate(0, grid.send_and_receive(messages, timeout=timeout))

                def evaluate(server_round: int, at: ArrayRecord) -> MetricRecord | None:
                    number = self._before + server_round
                    metrics = None if evaluate_fn is None else evaluate_fn(number, at)
                    _check_losses(metrics or {}, number)
                    return self._note("server", number, metrics)

                left = max(num_rounds - self._before, 0)
                if num_rounds < self._before:
                    _LOG.warning("%s has %d rounds, more than num_rounds=%d.", self.folder, self._before, num_rounds)
                evaluated = evaluate if evaluate_fn else None
                result: Result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, evaluated)
        except BusyError as error:
            raise SettingError(f"{self.folder} is in use by another process; wait until it has ended.") from error
        result.arrays = self._arrays()
        result.train_metrics_clientapp = self._records("train")
        result.evaluate_metrics_clientapp = self._records("evaluate")
        result.evaluate_metrics_serverapp = self._records("server")
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose who trains; see Flower's ``FedAvg``."""
        self._prepare(arrays)
        number = self._before + server_round
        return self._ask(super().configure_train(number, arrays, config, self._remaining(grid)), number)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate what the clients trained, and step; see the class.

        Args:
            server_round: From 1.
            replies: The replies, in any order.

        Returns:
            The new model, None if the round is skipped, and the round's metrics.
        """
        if not self._asked:
            return None, None
        assert self._layout is not None
        number = self._before + server_round
        answers = gather(
            replies,
            self._asked,
            _group(number),
            self._layout,
            flatten(self._parameters).detach(),
            self.learning_rate,
            (self.arrayrecord_key, self.weighted_by_key),
            self.most_examples,
        )
        metrics: dict[str, int | float] = {
            "round/updates": len(answers.nodes),
            "round/absent": len(answers.absent),
            "round/skipped": 0,
            **{f"refused/{node}": 1 for node in answers.refused},
        }
        self._check_guarantee(len(answers.nodes), number, metrics)
        trust: dict[int, float] = {}
        try:
            aggregation, trust = self._aggregate(answers, number)
            self._step(aggregation.update)
            if self.keep is not None and self.folder is not None:
                keep_round(self.folder, number, answers.updates(refused=True), self.keep)
            measured = unflatten(answers.measured(), self._statistics)
            self._statistics = [new.to(old) for new, old in zip(measured, self._statistics, strict=True)]
        except SettingError as error:
            _LOG.warning("round %d is skipped: %s", number, error)
            metrics["round/skipped"] = 1
        else:
            self.rule.end_round(number - 1)
            metrics["round/update_norm"] = aggregation.update.norm().item()
            metrics |= {f"rule/{name}": float(value) for name, value in aggregation.diagnostics.items()}
            metrics |= {f"trust/{node}": weight for node, weight in trust.items()}
            self._exclude(answers, trust)
        metrics |= {f"excluded/{node}": 1 for node in self._excluded}
        for what, reasons in [("counts as Byzantine", answers.refused), ("takes no part", answers.absent)]:
            for node, reason in sorted(reasons.items()):
                _LOG.info("\t> node %d %s: %s", node, what, reason)
        if trust:
            _LOG.info("\t> trust: %s", ", ".join(f"{node} {weight:.3f}" for node, weight in trust.items()))
        reported = self.train_metrics_aggr_fn(answers.contents, self.weighted_by_key) if answers.contents else {}
        record = self._note("train", number, MetricRecord({**reported, **metrics}))
        self._save(number)
        return None if metrics["round/skipped"] else self._arrays(), record

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose who evaluates; see Flower's ``FedAvg``."""
        number = self._before + server_round
        return self._ask(super().configure_evaluate(number, arrays, config, self._remaining(grid)), number)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate what the clients measured: of each metric the median, unless settings say otherwise.

        Args:
            server_round: From 1; 0 for the last round of a process before this one.
            replies: The replies, in any order.  Errors, late replies and those of nodes that were not asked are left
                out, and so is a node that sends several different ones.
        """
        if not self._asked:
            return None
        number = self._before + server_round
        by_node, _ = answering(replies, self._asked, _group(number))
        contents = [
            found[0].content for found in by_node.values() if all(reply.content == found[0].content for reply in found)
        ]
        metrics = self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None
        record = self._note("evaluate", number, metrics)
        self._save(number)
        return record

    def _ask(self, messages: Iterable[Message], number: int) -> list[Message]:
        """Mark the messages of a round, and remember whom they go to."""
        asked = list(messages)
        for message in asked:
            message.metadata.group_id = _group(number)
        self._asked = [message.metadata.dst_node_id for message in asked]
        return asked

    # Who takes part

    def _remaining(self, grid: Grid) -> Grid:
        """The grid without the nodes that are excluded."""
        if self.exclude_after is None:
            return grid
        remaining = _Remaining(grid, self._excluded)
        self._connected = remaining.get_node_ids()
        return remaining

    def _exclude(self, answers: Answers, trust: Mapping[int, float]) -> None:
        """Count in how many rounds in a row each node was rejected, and exclude those with too many."""
        if self.exclude_after is None:
            return
        for node in answers.nodes:
            out = node in answers.refused or trust.get(node) == 0
            self._rejected[node] = self._rejected.get(node, 0) + 1 if out else 0
        needed = max(self._least, self.min_train_nodes, self.min_available_nodes)
        if self.fraction_evaluate > 0:
            needed = max(needed, self.min_evaluate_nodes)
        f = tolerated(self.rule)
        most = inf if f is None else f
        for node, rounds in sorted(self._rejected.items(), key=lambda item: -item[1]):
            if rounds < self.exclude_after or node in self._excluded or node not in self._connected:
                continue
            if len(self._connected) <= needed or len(self._excluded) >= most:
                _LOG.warning("node %d stays, though rejected in %d rounds in a row.", node, rounds)
                break
            self._excluded.append(node)
            self._connected.remove(node)
            _LOG.warning("node %d is excluded: rejected in %d rounds in a row.", node, rounds)

    def _check_guarantee(self, n: int, number: int, metrics: dict[str, int | float]) -> None:
        """Note, log or stop at a round beyond what is proven of the rule.

        Raises:
            SettingError: If that is what ``on_no_guarantee`` wants.
        """
        warning = self.rule.guarantee(n, self.n_classes) if n else None
        metrics["round/no_guarantee"] = int(warning is not None)
        if warning is None:
            return
        if self.on_no_guarantee == "stop":
            raise SettingError(
                f"round {number} of {type(self.rule).__name__}: {warning}; raise min_train_nodes, lower f, or set "
                f"on_no_guarantee='warn'."
            )
        _LOG.warning("round %d: %s", number, warning)

    # The round

    def _aggregate(self, answers: Answers, number: int) -> tuple[Aggregation, dict[int, float]]:
        """Ask the rule; give each node's weight, too.

        Rows that are not finite count among the f that it tolerates.  A rule that tolerates none gets the others alone.

        Raises:
            SettingError: If it cannot serve the round.
        """
        if not answers.nodes:
            raise SettingError("no client answered.")
        if len(answers.refused) == len(answers.nodes):
            why = ", ".join(sorted(set(answers.refused.values())))
            raise SettingError(f"no reply of {len(answers.nodes)} counts: {why}; if clients diverge, lower their rate.")
        server = ModelOracle(self._module, self.client, self.classes, Round(number - 1, self._rate, self.seed))
        for refused in [True, False] if answers.refused else [True]:
            updates = answers.updates(refused)
            updates.layout = layout_of(trainable(self._module))
            self.rule.check(updates.n, self.n_classes)
            try:
                result = aggregated(self.rule, updates, server)
            except DivergedError:
                continue
            if result.update.isfinite().all():
                trust = result.trusted
                given = {} if trust is None else dict(zip(updates.ids or (), trust.tolist(), strict=True))
                return result, given and {node: given.get(node, 0.0) for node in answers.nodes}
        raise DivergedError(f"{type(self.rule).__name__} finds no finite update.")

    def _step(self, update: Float[Tensor, " d"]) -> None:
        """Step, or leave everything as it was.

        Raises:
            DivergedError: If the model would have NaN or inf, with which no client could go on.
        """
        before = [parameter.detach().clone() for parameter in self._parameters]
        memory = deepcopy(self._optimizer.state_dict())
        for parameter, gradient in zip(self._parameters, unflatten(update, self._parameters), strict=True):
            parameter.grad = gradient.to(parameter)
        self._optimizer.step()
        if not all(parameter.isfinite().all() for parameter in self._parameters):
            with torch.no_grad():
                for parameter, value in zip(self._parameters, before, strict=True):
                    parameter.copy_(value)
            self._optimizer.load_state_dict(memory)
            raise DivergedError("the server's step would leave NaN or inf in the model; lower its rate.")

    @property
    def _rate(self) -> float:
        return float(self._optimizer.param_groups[0]["lr"])

    # The model

    def _prepare(self, arrays: ArrayRecord) -> None:
        """Take the global model, and check once that rule, server and model suit each other.

        Raises:
            SettingError: If they do not.
        """
        layout = Layout.of(arrays)
        if self._layout is None:
            self._begin(arrays, layout)
        elif layout != self._layout:
            raise SettingError("the global model keeps its arrays' names and shapes, got others; use a new strategy.")
        for name, parameter in zip(layout.trained, self._parameters, strict=True):
            parameter.data.copy_(_tensor(arrays[name]))
        self._statistics = [_tensor(arrays[name]) for name in layout.statistics]
        if self._layout is None:
            self._layout = layout
            self._rehearse(layout.count(layout.trained))

    def _begin(self, arrays: ArrayRecord, layout: Layout) -> None:
        if not layout.trained:
            raise SettingError("a strategy needs arrays of floating-point numbers to train, got none.")
        numbers = layout.trained + layout.statistics
        broken = [name for name in numbers if not np.isfinite(arrays[name].numpy()).all()]
        if broken:
            raise SettingError(f"the initial model must be finite, got NaN or inf in {', '.join(broken)}.")
        self._others = {name: arrays[name] for name in arrays if name not in numbers}
        if self.model is None:
            self._module: nn.Module = nn.ParameterList(nn.Parameter(_tensor(arrays[name])) for name in layout.trained)
            self._parameters = list(self._module.parameters())
        else:
            ours = {name: tuple(value.shape) for name, value in trainable(self.model).items()}
            theirs = {name: layout.shapes[name] for name in layout.trained}
            if ours != theirs or list(ours) != list(theirs):
                pairs = zip_longest(ours.items(), theirs.items(), fillvalue="none")
                wanted, got = next((a, b) for a, b in pairs if a != b)
                raise SettingError(
                    f"the arrays must be the trainable parameters of {type(self.model).__name__} in their order, here "
                    f"{wanted}, got {got}; start with ArrayRecord(lightning_fl.network.parameters.trainable(model))."
                )
            self._module = self.model
            self._parameters = [value for value in self.model.parameters() if value.requires_grad]
        self._optimizer = self.make_server(self._parameters)
        server = type(self._optimizer)
        # Now: torch adds to the defaults later.
        self._server = f"{server.__module__}.{server.__qualname__}({self._optimizer.defaults})"

    def _rehearse(self, d: int) -> None:
        """Ask the rule about small random updates: what it lacks is said before clients work."""
        rows = torch.randn(self._least, d, generator=seeding.generator(self.seed, "rehearsal")) * 1e-3
        server = ModelOracle(self._module, self.client, self.classes, Round(0, self._rate, self.seed))
        first = self.rule.needs_client or 0
        with suppress(DivergedError):  # of such updates
            layout = layout_of(trainable(self._module))
            aggregated(self.rule, Updates(rows, ids=range(first, first + self._least), layout=layout), server)

    def _arrays(self) -> ArrayRecord:
        """The global model."""
        assert self._layout is not None
        arrays = dict(self._others)
        names, values = self._layout.trained + self._layout.statistics, [*self._parameters, *self._statistics]
        for name, value in zip(names, values, strict=True):
            arrays[name] = Array(value.detach().numpy())
        return ArrayRecord({name: arrays[name] for name in self._layout.shapes})

    # What outlives a process

    def _note(self, kind: str, number: int, metrics: MetricRecord | None) -> MetricRecord | None:
        plain = None if metrics is None else {name: _plain(value) for name, value in metrics.items()}
        self._history[kind][number] = plain
        return metrics

    def _records(self, kind: str) -> dict[int, MetricRecord]:
        found = sorted(self._history[kind].items())
        return {number: MetricRecord(metrics) for number, metrics in found if metrics is not None}

    @property
    def _identity(self) -> dict[str, Any]:
        """What a saved run must share with this one."""
        assert self._layout is not None
        return {
            "rule": f"{type(self.rule).__module__}.{settings_of(self.rule)}",
            **self._at_server,
            "server": self._server,
            "learning_rate": self.learning_rate,
            "most_examples": self.most_examples,
            "exclude_after": self.exclude_after,
            "seed": self.seed,
            "arrays": dict(self._layout.shapes),
        }

    def _save(self, number: int) -> None:
        if self.folder is None:
            return
        state = {
            "round": number,
            "parameters": [parameter.detach() for parameter in self._parameters],
            "statistics": self._statistics,
            "optimizer": self._optimizer.state_dict(),
            "memory": self.rule.state_dict(),
            "history": self._history,
            "rejected": self._rejected,
            "excluded": self._excluded,
            **self._identity,
        }
        files.save(self.folder / FILE, state)
        if number == self._before + 1:
            files.load(self.folder / FILE)  # now, not after a kill: a rule of one's own may remember any object

    def _load(self) -> None:
        """Go on where a process before this one stopped, if there was one."""
        if self.folder is None or not (self.folder / FILE).exists():
            return
        state = files.load(self.folder / FILE)
        for name, ours in self._identity.items():
            if name in state and state[name] != ours:  # an earlier version's has fewer
                raise SettingError(
                    f"{self.folder} holds a run with other settings, {name}: {state[name]}, got {ours}; choose "
                    f"another folder."
                )
        if len(state["parameters"]) != len(self._parameters):
            raise DataError(
                f"{self.folder / FILE} is an earlier version's, which trained running statistics; remove it to begin "
                f"again."
            )
        self._statistics = state.get("statistics", [])
        with torch.no_grad():
            for parameter, value in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        self.rule.load_state_dict(state["memory"])
        self._history, self._before = state["history"], state["round"]
        self._rejected, self._excluded = state.get("rejected", {}), state.get("excluded", [])
        _LOG.info("%s: going on after round %d; Flower counts from there.", self.folder, self._before)


class _Remaining:
    """A grid without some of its nodes; a copy of Flower's own might close its channel."""

    def __init__(self, grid: Grid, excluded: Collection[int]):
        self._grid, self._out = grid, excluded

    def get_node_ids(self) -> list[int]:
        return [node for node in self._grid.get_node_ids() if node not in self._out]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def _plain(value: Any) -> Any:
    """Turn what a client reports into Python's own numbers: NumPy's are not read back."""
    if isinstance(value, list):
        return [*map(_plain, value)]
    return float(value) if isinstance(value, float) else value


def _group(number: int) -> str:
    """What the messages of a round carry, and the replies to them."""
    return f"round {number}"


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.array(array.numpy()))


def _check_losses(metrics: Mapping[str, Any], number: int) -> None:
    """Check what the server measured of the model after a round.

    Raises:
        DivergedError: If a loss is not finite: clients could only go on from it to NaN.

    >>> _check_losses({"loss": float("nan"), "accuracy": 0.1}, 3)
    Traceback (most recent call last):
        ...
    lightning_fl.errors.DivergedError: the model of round 3 has loss=nan; lower the rate of server or clients.
    """
    for name, value in metrics.items():
        if "loss" in name.lower() and not isinstance(value, list) and not isfinite(value):
            raise DivergedError(f"the model of round {number} has {name}={value}; lower the rate of server or clients.")


def _digest(samples: Samples) -> str:
    """Tell samples apart by what they hold, and by how it is read."""
    inputs = samples.inputs
    read = repr((inputs.dtype, inputs.shape, samples.n_classes, samples.mean, samples.std)).encode()
    held = [part.detach().cpu().flatten().view(torch.uint8).numpy().tobytes() for part in (inputs, samples.targets)]
    return sha256(b"".join([read, *held])).hexdigest()[:16]


def takes_f(rule: str) -> bool:
    """Tell whether the rule of this name has an f to be told.

    >>> takes_f("krum"), takes_f("median")
    (True, False)
    """
    return _has_f(_chosen(rule))


def _chosen(rule: str, *arguments: str) -> DictConfig:
    """The configuration of the rule of a name."""
    check_choices([f"aggregator={rule}"])
    config: DictConfig = compose([f"aggregator={rule}", *arguments]).aggregator
    return config


def _has_f(config: DictConfig) -> bool:
    return "oc.select:f," in OmegaConf.to_yaml(config)


def _rule(rule: Aggregator | str, f: int | None) -> Aggregator:
    if not isinstance(rule, str):
        check_instance("rule", rule, Aggregator, "fl.aggregator.Krum(f=4), or its name")
        if f is not None:
            raise SettingError(f"{type(rule).__name__} has its own f, got f={f} as well; leave it out.")
        check_hooks(rule, "RobustStrategy")
        return rule
    if f is not None:
        check_whole("f", f, 0)
    config = _chosen(rule, *([] if f is None else [f"f={f}"]))
    tolerates = _has_f(config)
    if f is not None and not tolerates:
        raise SettingError(f"{rule} has no f, got f={f}; leave it out.")
    if f is None and tolerates:
        raise SettingError(f"{rule} needs f, how many Byzantine clients it tolerates, got none; give f.")
    made: Aggregator = make(config)
    check_hooks(made, "RobustStrategy")
    return made


def _classes(samples: Samples | None) -> ClientBatch:
    """The server's virtual clients, one for each class."""
    if samples is None:
        return ClientBatch(Samples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), 1), [], [])
    indices = [(samples.targets == z).nonzero().flatten() for z in range(samples.n_classes)]
    missing = [z for z, index in enumerate(indices) if not len(index)]
    if missing:
        raise SettingError(f"the server needs samples of each class, got none of class {missing[0]}.")
    return ClientBatch(samples, indices, range(-1, -1 - len(indices), -1))
