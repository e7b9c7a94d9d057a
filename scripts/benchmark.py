"""Measure speed as ratios within one run, contenders in turn, so that other load on the machine hits all alike.

    python scripts/benchmark.py round [OVERRIDES...]   a round of boba_mnist, float32 and float64, against its floor
    python scripts/benchmark.py boba                   BOBA's rule against one float64 Gram matrix
    python scripts/benchmark.py aggregators [--d ...]  every rule of conf against its floor, and against byzfl
    python scripts/benchmark.py simulation [OVERRIDES...] [--rules ...] [--threads ...]   whole rounds, and byzfl's
    python scripts/benchmark.py scale [OVERRIDES...] [--sizes ...]   rounds of many clients: time, memory, their growth
    python scripts/benchmark.py startup                what a user waits for before anything is computed
    python scripts/benchmark.py flower                 a Flower strategy against its rule, and against Flower's own
    python scripts/benchmark.py processes [OVERRIDES]  rounds over two processes against rounds in one, one thread each

Times are medians, rounds per second means; the spread is the middle half of the ratios taken turn by turn.
"""

import argparse
import json
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split
import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F

from lightning_fl import Aggregator, ClientBatch, Samples, SettingError, Updates
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.delayed_momentum import DelayedMomentum
from lightning_fl.aggregator.remembering import RememberingWrapper
from lightning_fl.client.base import minibatches
from lightning_fl.client.gradient import Gradient
from lightning_fl.device.memory import peak, reset_peak
from lightning_fl.model_oracle import ModelOracle
from lightning_fl.module import FederatedModule
from lightning_fl.network.parameters import trainable
from lightning_fl.round import Round
from lightning_fl.run.assemble import make, make_data, make_model, make_module, make_trainer
from lightning_fl.run.config import choices, choose, compose, spelled
from lightning_fl.run.explain import explained
from lightning_fl.run.fit import silence
from lightning_fl.run.train import train
from lightning_fl.samples import RoundBatch
from lightning_fl.tables import table
from lightning_fl.updates.columns import Layout
from lightning_fl.updates.layout import layout_of
from lightning_fl.updates.products import gram_matrix

Times = dict[str, list[float]]
CPU = torch.device("cpu")
BARE: dict[str, Any] = {"limit_val_batches": 0, "enable_checkpointing": False, "enable_progress_bar": False}


class Floors(pl.Callback):
    """Times each round as the trainer runs it, and between two rounds the floors, outside the round's time."""

    def __init__(self, floors: dict[str, Callable[[], Any]], warm_up: int):
        self.floors = floors
        self.warm_up = warm_up
        self.times: Times = {"round": [], "inside": [], **{name: [] for name in floors}}
        self.started = perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """Time the floors."""
        now = perf_counter()
        phases = sum(value for name, value in outputs["metrics"].items() if name.startswith("seconds/"))
        if trainer.global_step > self.warm_up:
            self.times["round"].append(now - self.started)
            self.times["inside"].append(phases)
            for name, floor in self.floors.items():
                self.times[name].append(seconds(floor))
        self.started = perf_counter()


def seconds(function: Callable[[], Any]) -> float:
    """Time one call."""
    started = perf_counter()
    function()
    return perf_counter() - started


def in_turn(contenders: dict[str, Callable[[], Any]], turns: int) -> Times:
    """Time each contender once a turn, after one turn that does not count."""
    times: Times = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, contender in contenders.items():
            taken = seconds(contender)
            if turn:
                times[name].append(taken)
    return times


def rows_of(times: Times, floor: list[float]) -> list[list[str]]:
    """One row a contender: milliseconds, ratio to the floor, middle half of the ratios."""
    rows = []
    for name, taken in times.items():
        ratios = [t / f for t, f in zip(taken, floor, strict=True)]
        low, _, high = quantiles(ratios, n=4)
        rows.append([name, f"{1e3 * median(taken):.1f}", f"{median(ratios):.2f}", f"{low:.2f} to {high:.2f}"])
    return rows


def benchmark_round(overrides: list[str], turns: int) -> None:
    """Compare whole rounds with the two floors of the clients' work plus one Gram matrix."""
    warm_up = 3
    config = compose(["experiment=boba_mnist", "run_dir=unused", "run_name=benchmark", "logger=none", *overrides])
    module, data = make_module(config), make_data(config)
    client, model = module.client, module.model
    if not isinstance(client, Gradient) or client.batch_size is not None:
        raise SettingError(
            "a round's floor is one gradient of all samples, so it needs client=gradient without batches."
        )
    data.prepare_data()
    data.setup()
    batch = data.round(0).honest
    clients = [batch.samples.gather(index) for index in batch.indices]
    x, y = torch.cat([x for x, _ in clients]), torch.cat([y for _, y in clients])
    d = sum(value.numel() for value in trainable(model).values())
    rows = torch.randn(data.federation.n, d)

    def gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))

    floors = {
        "one batch": lambda: gradient(x, y),
        "loop over clients": lambda: [gradient(*client) for client in clients],
        "one Gram matrix": lambda: gram_matrix(rows),
    }
    print(f"{len(batch)} + {data.federation.n_byzantine} clients, {len(x):,} samples, d = {d:,}, {turns} rounds")
    for precision in ("32-true", "64-true"):
        timer = Floors(floors, warm_up)
        with TemporaryDirectory() as folder:
            trainer = make_trainer(
                config,
                Path(folder),
                [timer],
                max_steps=warm_up + turns,
                precision=precision,
                accelerator="cpu",  # where the floors are measured
                **BARE,
            )
            trainer.fit(make_module(config), datamodule=data)
        times = timer.times
        batched, loop = median(times["one batch"]), median(times["loop over clients"])
        faster = times["one batch" if batched < loop else "loop over clients"]
        floor = [work + gram for work, gram in zip(faster, times["one Gram matrix"], strict=True)]
        inside = times.pop("inside")
        outside = [whole - part for whole, part in zip(times["round"], inside, strict=True)]
        print(f"\n{precision} (floors: float32)")
        print(table(["", "ms", "ratio to floor", "middle half"], rows_of({"floor": floor, **times}, floor)))
        print(f"  Lightning, logging and bookkeeping: {1e3 * median(outside):.1f} ms per round")


def benchmark_boba(turns: int, n: int = 115, c: int = 10, d: int = 199_210) -> None:
    """Compare the rule with one float64 Gram matrix of the same updates."""
    draw = torch.Generator().manual_seed(0)
    classes = torch.randn(c, d, generator=draw)
    shares = torch.rand(n, c, generator=draw) ** 4
    updates = shares / shares.sum(1, keepdim=True) @ classes + 0.01 * torch.randn(n, d, generator=draw)
    updates[100:] = -10 * updates[:100].mean(0)

    def gram() -> torch.Tensor:
        rows = updates.double()
        return rows @ rows.T

    times = in_turn({"one Gram matrix": gram, "boba": lambda: Boba(16)(updates, classes)}, turns)
    print(f"n = {n}, c = {c}, d = {d:,}, float32 updates, {turns} turns")
    print(table(["", "ms", "ratio", "middle half"], rows_of(times, times["one Gram matrix"])))


def floors_of(rows: torch.Tensor, f: int) -> dict[str, Callable[[], Any]]:
    """What rules cannot do without, part by part; of the columns' order there are several ways."""
    n, d = rows.shape
    weights, momenta = torch.full((n,), 1 / n), rows.clone()

    def partition() -> np.ndarray:
        return np.partition(rows.numpy(), [f, n // 2, n - f - 1], axis=0)

    return {
        "mean": lambda: rows.mean(0),
        "Gram matrix": lambda: gram_matrix(rows),
        "weighted sum": lambda: weights @ rows,
        "signs": lambda: rows.sign().sum(0),
        "momenta": lambda: momenta.mul_(0.9).add_(rows, alpha=0.1),
        "partition of rows": lambda: [np.partition(row.abs().numpy(), d // 2) for row in rows],
        "columns by torch.median": lambda: rows.median(0).values,
        "columns by torch.sort": lambda: rows.sort(0).values,
        "columns by torch.topk": lambda: rows.topk(n // 2 + 1, dim=0).values,
        "columns by numpy.partition": partition,
    }


def floor_of(rule: Aggregator, times: dict[str, float]) -> dict[str, float]:
    """The least work of a rule: the seconds of each part.  One that remembers has that of the rule inside it, too.

    Args:
        rule: The rule.
        times: Seconds of each of `floors_of`.
    """
    columns = min((name for name in times if name.startswith("columns")), key=times.__getitem__)
    inside = rule.rule if isinstance(rule, RememberingWrapper) else rule
    one_pass = ("Average", "Normalized", "ClippedSum", "ServerOnly", "SignVote", "Crfl")
    by_columns = ("Median", "TrimmedMean", "Meamed", "Phocas", "Bulyan")
    work = {
        **{name: ["mean"] for name in one_pass},
        **{name: [columns] for name in by_columns},
        "Rlr": ["signs", "mean"],
        "Fedseca": ["Gram matrix", "partition of rows", columns],
        "Lasa": ["partition of rows", "weighted sum"],
        "Alignins": ["signs", "partition of rows", "weighted sum"],
    }
    least = work.get(type(inside).__name__, ["Gram matrix", "weighted sum"])
    return {part: times[part] for part in [*["momenta"] * isinstance(rule, DelayedMomentum), *least]}


def layers(d: int) -> Layout:
    """The default model's tensors, scaled to d columns in all, each a multiple of ten classes."""
    layout = layout_of(trainable(make_model(compose([]))))

    def scaled(column: int) -> int:
        return column * d // layout[-1].stop // 10 * 10

    return tuple(replace(layer, start=scaled(layer.start), stop=scaled(layer.stop)) for layer in layout)


def byzfl_rules(f: int) -> dict[str, Callable[[torch.Tensor], Any]]:
    """The same rules by byzfl, where it is installed (extra ``benchmark``), by our names."""
    try:
        import byzfl
    except ImportError:
        return {}
    rules: dict[str, Callable[[torch.Tensor], Any]] = {
        "average": byzfl.Average(),
        "median": byzfl.Median(),
        "trimmed_mean": byzfl.TrMean(f),
        "krum": byzfl.Krum(f),
        "multi_krum": byzfl.MultiKrum(f),
        "geometric_median": byzfl.GeometricMedian(),
        "centred_clipping": byzfl.CenteredClipping(),
        "monna": byzfl.MoNNA(f),
        "meamed": byzfl.Meamed(f),
        "caf": byzfl.CAF(f),
    }
    mixing, bucketing = byzfl.NNM(f), byzfl.Bucketing(2)
    for name in ("krum", "multi_krum", "trimmed_mean", "median", "geometric_median"):
        rules[f"nnm_{name}"] = lambda rows, name=name: rules[name](mixing(rows))  # type: ignore[misc]
    for name in ("krum", "multi_krum"):
        rules[f"bucketing_{name}"] = lambda rows, name=name: rules[name](bucketing(rows))  # type: ignore[misc]
    return rules


def peak_extra(function: Callable[[], Any]) -> float | None:
    """Bytes that a call needs beside what was there before; None where the system does not tell."""
    before = reset_peak(CPU)
    function()
    return None if before is None else peak(CPU) - before


def benchmark_aggregators(d: int, turns: int, names: list[str], n: int = 115, f: int = 15, c: int = 10) -> None:
    """Compare every rule with its floor and with byzfl's rule of that name, all in one interleaved run."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(n, d, generator=draw)
    rows[n - f :] = -10 * rows[: n - f].mean(0)
    model = torch.nn.Linear(d // c, c, bias=False)
    samples = Samples(torch.randn(2 * c, d // c, generator=draw), torch.arange(2 * c) % c, c)
    classes = ClientBatch(samples, [torch.tensor([z, z + c]) for z in range(c)], range(c))
    rules: dict[str, Any] = {}
    known = choices("aggregator")
    for name in [choose(name, known, "rule") for name in names] or known:
        rules[name] = make(compose([f"aggregator={name}", f"f={f}"]).aggregator)

    layout = layers(d)

    def apply(rule: Any) -> torch.Tensor:
        oracle = ModelOracle(model, Gradient(), classes, Round(0, 0.1, 0))
        return rule.aggregate(Updates(rows, ids=range(n), layout=layout), oracle).update

    for rule in rules.values():
        for _ in range(2 if rule.remembers else 0):  # FLDetector learns from movements of the model
            apply(rule)
            rule.on_train_batch_end(*[None] * 5)
            torch.nn.init.normal_(model.weight, generator=draw)

    theirs = byzfl_rules(f)
    floors = floors_of(rows, f)
    contenders = dict(floors)
    contenders |= {f"ours {name}": partial(apply, rule) for name, rule in rules.items()}
    contenders |= {f"byzfl {name}": partial(rule, rows) for name, rule in theirs.items() if name in rules}
    times = in_turn(contenders, turns)
    medians = {name: median(taken) for name, taken in times.items()}
    lines = []
    for name, rule in rules.items():
        floor = floor_of(rule, {part: medians[part] for part in floors})
        ours, other = medians[f"ours {name}"], medians.get(f"byzfl {name}")
        extra = peak_extra(partial(apply, rule))
        lines.append(
            [
                name,
                f"{1e3 * ours:.1f}",
                f"{ours / sum(floor.values()):.2f}",
                " + ".join(floor),
                f"{other / ours:.1f}" if other else "",
                f"{extra / rows.nbytes:.2f}" if extra is not None else "",
            ]
        )
    print(f"n = {n}, f = {f}, d = {d:,}, float32, {turns} turns" + ("" if theirs else "; byzfl is not installed"))
    print(table(["rule", "ms", "ratio", "to floor", "byzfl / ours", "extra memory / input"], lines))
    print("floors: " + ", ".join(f"{name} {1e3 * medians[name]:.1f} ms" for name in floors))


class Turns(pl.Callback):
    """Times our rounds some at a time, and between two such turns a few of the other side's, outside our time.

    A turn holds all that a round brings, also the evaluation and the checkpoint of the turn before.

    Args:
        other: One round of the other side.
        floor: The least work of a round.
        rounds: Of ours in a turn.
    """

    def __init__(self, other: Callable[[], Any], floor: Callable[[], Any], rounds: int):
        self.other, self.floor = other, floor
        self.rounds = rounds
        self.ours: list[float] = []
        """Seconds per round, by turn; the first, which warms up, is left out."""
        self.theirs: list[float] = []
        self.floors: list[float] = []
        self.phases: Times = {}
        self.started = perf_counter()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: RoundBatch, batch_idx: int
    ) -> None:
        """Keep where the round's time went; at the end of a turn let the other side have its turn."""
        now = perf_counter()
        assert isinstance(pl_module, FederatedModule)
        assert isinstance(pl_module.client, Gradient)
        for name, value in outputs["metrics"].items():
            if name.startswith("seconds/"):
                self.phases.setdefault(name.removeprefix("seconds/"), []).append(value)
        if trainer.global_step % self.rounds:
            return
        if trainer.global_step > self.rounds:
            self.ours.append((now - self.started) / self.rounds)
            self.theirs.append(seconds(self.other))
            self.floors.append(seconds(self.floor))
        this_round = Round(batch.index, 0.1, batch.seed)
        draw = partial(minibatches, batch.honest, pl_module.client.batch_size, this_round)
        self.phases.setdefault("draw", []).append(seconds(draw))
        self.started = perf_counter()

    def split(self) -> dict[str, float]:
        """Milliseconds of a round by what they went to."""
        taken = {name: 1e3 * median(values) for name, values in self.phases.items()}
        taken["clients"] -= taken["draw"]
        taken["rule"] = taken.pop("aggregator")
        taken["server"] += taken.pop("robustness")
        order = ["draw", "clients", "attack", "rule", "server"]
        return {name: taken[name] for name in order} | {"rest": 1e3 * median(self.ours) - sum(taken.values())}


BYZFL_RULES = {"average": "Average", "trimmed_mean": "TrMean", "geometric_median": "GeometricMedian", "krum": "Krum"}


def byzfl_round(config: Any, data: Any, rule: str) -> Callable[[], Any]:
    """One round of byzfl's own client-server loop (``byzfl.benchmark.train``, DSGD) on the same samples and model."""
    try:
        import byzfl
        from byzfl.fed_framework import models
    except ImportError as error:
        raise SettingError("simulation compares with byzfl; install the extra: pip install .[benchmark].") from error
    models.of_lightning_fl = lambda: make_model(config)  # where byzfl finds models by name
    h, f, batch_size = len(data.federation.honest_ids), config.federation.n_byzantine, config.client.batch_size
    samples = torch.utils.data.TensorDataset(*data.train.gather(torch.arange(len(data.train))))
    samples.targets = data.train.targets  # type: ignore[attr-defined]  # which byzfl wants, as torchvision has it
    spread = {"data_distribution_name": "iid", "nb_honest": h, "batch_size": batch_size}
    spread["data_loader"] = torch.utils.data.DataLoader(samples)
    common: dict[str, Any] = {"model_name": "of_lightning_fl", "device": "cpu", "optimizer_name": "SGD"}
    common |= {"learning_rate": 0.1, "weight_decay": 0.0, "milestones": [], "learning_rate_decay": 1.0}
    own = {"loss_name": "CrossEntropyLoss", "LabelFlipping": False, "nb_labels": data.n_classes, "momentum": 0.0}
    own |= common | {"store_per_client_metrics": False}
    loaders = byzfl.DataDistributor(spread).split_data()
    clients = [byzfl.Client(own | {"training_dataloader": loader}) for loader in loaders]
    chosen = {"name": BYZFL_RULES[rule], "parameters": {"f": f}}
    told = {"aggregator_info": chosen, "pre_agg_list": [], "test_loader": spread["data_loader"]}
    server = byzfl.Server(common | told)
    parameters = {"tau": lie_factor(h, f)}
    attack = byzfl.ByzantineClient({"name": "ALittleIsEnough", "f": f, "parameters": parameters})

    def one_round() -> None:
        for client in clients:
            client.compute_gradients()
        honest = [client.get_flat_gradients_with_momentum() for client in clients]
        server.update_model_with_gradients(honest + attack.apply_attack(honest))
        model = server.get_dict_parameters()
        for client in clients:
            client.set_model_state(model)

    return one_round


def floor_of_round(config: Any, data: Any) -> Callable[[], Any]:
    """The least work of a round: one gradient of all its samples in one batch, and what the rule cannot do without."""
    model, f = make_model(config), config.federation.n_byzantine
    drawn = minibatches(data.round(0).honest, config.client.batch_size, Round(0, 0.1, 0))[0]
    x, y = drawn.samples.gather(torch.cat(list(drawn.indices)))
    rows = torch.randn(len(drawn) + f, sum(value.numel() for value in trainable(model).values()))
    floors = floors_of(rows, f)
    times = {part: min(seconds(work) for _ in range(3)) for part, work in floors.items()}
    parts = floor_of(make(config.aggregator), times)

    def work() -> None:
        torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        for part in parts:
            floors[part]()

    return work


def benchmark_simulation(overrides: list[str], rules: list[str], rounds: int, a_turn: int = 10) -> None:
    """Compare whole rounds with byzfl's and with their floors, from the command line and without what it adds."""
    job = ["data=synthetic", "data.n_train=60000", "data.n_test=10000", "partition=iid", "model=mlp"]
    job += ["model.hidden=[50]", "client.batch_size=32", "adversary=lie", "f=15", "schedule=constant", "logger=none"]
    job += ["run_dir=unused", "run_name=benchmark", "trainer.accelerator=cpu", f"trainer.max_steps={rounds}"]
    lines, splits = [], []
    for rule in rules:
        config = compose([*job, f"aggregator={rule}", *overrides])
        data = make_data(config)
        data.prepare_data()
        data.setup()
        other, floor = byzfl_round(config, data, rule), floor_of_round(config, data)
        command, bare = Turns(other, floor, a_turn), Turns(other, floor, a_turn)
        with (
            TemporaryDirectory() as folder,
            open(os.devnull, "w") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            train(config, Path(folder, "run"), describe=False, callbacks=[command])
            make_trainer(config, Path(folder), [bare], **BARE).fit(make_module(config), datamodule=data)
        for name, timer in [("command line", command), ("bare", bare)]:
            ours, theirs = (len(taken) / sum(taken) for taken in (timer.ours, timer.theirs))
            ratios = [t / o for o, t in zip(timer.ours, timer.theirs, strict=True)]
            low, _, high = quantiles(ratios, n=4)
            least = median(o / f for o, f in zip(timer.ours, timer.floors, strict=True))
            line = [f"{theirs:.1f}", f"{ours:.1f}", f"{ours / theirs:.1f}", f"{low:.1f} to {high:.1f}", f"{least:.1f}"]
            lines.append([rule, name, *line])
            splits.append([rule, name, *(f"{taken:.1f}" for taken in timer.split().values())])
    b = data.federation.n_byzantine
    print(f"{len(data.federation.honest_ids)} + {b} clients, lie, {rounds} rounds of ours, byzfl's loop in turns")
    print(table(["rule", "", "byzfl, rounds a second", "ours", "ratio", "middle half", "to floor"], lines))
    print("\nMilliseconds of our rounds, medians")
    print(table(["rule", "", *timer.split()], splits))


class Memory(pl.Callback):
    """Measures what a round of many clients takes beside its rows, and one Gram matrix of those rows."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes: float | None = None

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Forget the memory of what came before."""
        self.before = reset_peak(CPU)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """Keep the last round's figures."""
        self.bytes = None if self.before is None else peak(CPU) - self.before
        phases = {name.removeprefix("seconds/"): t for name, t in outputs["metrics"].items() if "seconds/" in name}
        self.seconds = phases | {"round": sum(phases.values())}


def one_size(n: int, overrides: list[str]) -> tuple[int, dict[str, float], float | None]:
    """Run two rounds of n honest clients and a tenth as many Byzantine ones; runs in a process of its own.

    Returns:
        d; seconds of the second round's phases and of one Gram matrix; bytes the round needs beside its n x d updates.
    """
    job = ["data=synthetic", f"data.n_train={32 * n}", "partition=iid", "model=logistic", "client.batch_size=32"]
    job += [f"federation.n_clients={n}", f"federation.n_byzantine={n // 10}", f"f={n // 10}", "adversary=min_max"]
    job += ["aggregator=geometric_median", "schedule=constant", "logger=none", "run_dir=unused", "run_name=benchmark"]
    config = compose([*job, *overrides])
    module, data, memory = make_module(config), make_data(config), Memory()
    with silence(), TemporaryDirectory() as folder:
        trainer = make_trainer(config, Path(folder), [memory], max_steps=2, accelerator="cpu", **BARE)
        trainer.fit(module, datamodule=data)
    if module.diverged:
        raise SettingError(f"scale measures rounds that end, got one that diverged: {module.diverged}.")
    d = sum(value.numel() for value in trainable(module.model).values())
    rows = torch.randn(data.federation.n, d)
    memory.seconds["Gram matrix"] = seconds(lambda: gram_matrix(rows))
    return d, memory.seconds, None if memory.bytes is None else memory.bytes - rows.nbytes


def benchmark_scale(sizes: list[int], overrides: list[str]) -> None:
    """Show how the time and the memory of a round grow with the number of clients."""
    lines, before = [], None
    context = multiprocessing.get_context("spawn")
    for n in sizes:
        with context.Pool(1, initializer=torch.set_num_threads, initargs=[torch.get_num_threads()]) as alone:
            d, taken, extra = alone.apply(one_size, (n, overrides))
        m = n + n // 10
        growth = ["", ""]
        if before is not None:
            pairs = [(taken["round"], before[1]), (extra or 0, before[2] or 0)]
            growth = [f"{log(a / b) / log(n / before[0]):.1f}" if min(a, b) > 0 else "" for a, b in pairs]
        phases = [f"{taken[name]:.2f}" for name in ("round", "clients", "attack", "aggregator", "Gram matrix")]
        server = (taken["attack"] + taken["aggregator"]) / taken["Gram matrix"]
        memory = (
            ["", ""] if extra is None else [f"{extra / 2**30:.2f}", f"{extra / (8 * m * m):.1f}" if n >= 1000 else ""]
        )
        lines.append([f"{n:,}", *phases, f"{server:.1f}", growth[0], *memory, growth[1]])
        before = n, taken["round"], extra
        print(f"n = {n:,}: {taken['round']:.2f} s", file=sys.stderr)
    print(
        f"n honest and n / 10 Byzantine clients, n' of both, d = {d:,}; seconds of a round, memory beside the updates"
    )
    head = ["n", "round", "clients", "attack", "rule", "Gram matrix", "attack and rule / Gram", "grows by n^"]
    print(table([*head, "memory, GB", "of n' x n'", "grows by n^"], lines))


def benchmark_startup(turns: int) -> None:
    """Compare what starts with this package with importing torch and Lightning alone, each in a process of its own."""
    ours = [sys.executable, "-m", "lightning_fl"]
    small = ["data=synthetic", "data.n_train=200", "trainer.max_steps=1", "logger=none", "trainer.accelerator=cpu"]
    with TemporaryDirectory() as folder:
        sweep = Path(folder, "seeds.yaml")
        command = 'command: ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]'
        values = ", ".join(f"{name.split('=')[0]}: {{value: {name.split('=')[1]}}}" for name in small[:3])
        sweep.write_text(
            f"program: train.py\n{command}\nmethod: grid\nmetric: {{name: accuracy}}\n"
            f"parameters: {{{values}, seed: {{values: [0, 1, 2, 3]}}}}\n"
        )
        floor = "import torch and pytorch_lightning"
        commands = {
            # lightning_fl itself imports nothing here; it makes torchvision importable beside a CPU-only torch.
            floor: [sys.executable, "-c", "import lightning_fl, torch, pytorch_lightning"],
            "import lightning_fl": [sys.executable, "-c", "import lightning_fl"],
            "import every name of lightning_fl": [sys.executable, "-c", "from lightning_fl import *"],
            "a wrong name": [*ours, "train", "+aggregator=bobba"],
            "one run of one round": [*ours, "train", *small, f"hydra.run.dir={folder}/run"],
            "a sweep of four such runs": [*ours, "sweep", str(sweep), f"--folder={folder}/"],
        }

        def start(words: list[str]) -> None:
            new = ("--folder", "hydra.run.dir")  # of each call
            given = [f"{word}{perf_counter()}" if word.startswith(new) else word for word in words]
            subprocess.run(given, cwd=folder, capture_output=True, check=False)

        times = in_turn({name: partial(start, words) for name, words in commands.items()}, turns)
    print(table(["", "ms", "ratio", "middle half"], rows_of(times, times[floor])))


def benchmark_flower(turns: int, n: int = 100, f: int = 10) -> None:
    """Compare what a strategy does with the replies of a round with its rule alone plus reading them."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvg, FedTrimmedAvg, Krum

    from lightning_fl.flower import RobustStrategy

    with suppress(ImportError):  # before 1.41 messages do not ask which task sends them
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    draw = torch.Generator().manual_seed(0)
    model = {
        f"{layer}.{name}": torch.randn(shape, generator=draw)
        for layer, (i, o) in enumerate([(784, 200), (200, 200), (200, 10)])
        for name, shape in [("weight", (o, i)), ("bias", (o,))]
    }
    sent = ArrayRecord(model)
    nodes = SimpleNamespace(get_node_ids=lambda: range(1, n + 1))  # a grid whose nodes are only counted
    start = torch.cat([value.flatten() for value in model.values()])

    def reply(message: Message) -> Message:
        moved = {name: value + 0.1 * torch.randn(value.shape, generator=draw) for name, value in model.items()}
        record = RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord({"num-examples": 600})})
        return Message(record, reply_to=message)

    asking = RobustStrategy("average")
    replies = [reply(message) for message in asking.configure_train(1, sent, ConfigRecord(), nodes)]

    def read() -> torch.Tensor:
        rows = torch.empty(n, len(start))
        for row, arrays in zip(rows, kept, strict=True):
            torch.cat([value.flatten() for value in ArrayRecord(arrays).to_torch_state_dict().values()], out=row)
        return rows

    kept = [dict(message.content["arrays"]) for message in replies]

    def fresh() -> list[Message]:
        for message, arrays in zip(replies, kept, strict=True):  # Flower's trimmed mean empties the records
            message.content["arrays"] = ArrayRecord(arrays)
        return replies

    contenders: dict[str, Callable[[], Any]] = {"reading alone": read}
    rules = {"average": None, "krum": f, "trimmed_mean": f, "nnm_trimmed_mean": f}
    nothing = Samples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), 1)
    server = ModelOracle(torch.nn.Linear(1, 1), Gradient(), ClientBatch(nothing, [], []), Round(0, 1.0, 0))

    def alone(rule: Aggregator) -> torch.Tensor:
        return rule.aggregate(Updates(read().neg_().add_(start), ids=range(n)), server).update

    def whole(strategy: Any) -> Any:
        return strategy.aggregate_train(1, fresh())

    for name, tolerated in rules.items():
        strategy = RobustStrategy(name, f=tolerated)
        strategy.configure_train(1, sent, ConfigRecord(), nodes)
        contenders[f"{name}: rule and reading"] = partial(alone, strategy.rule)
        contenders[f"{name}: RobustStrategy"] = partial(whole, strategy)
    theirs = {"average": FedAvg(), "krum": Krum(num_malicious_nodes=f), "trimmed_mean": FedTrimmedAvg(beta=f / n)}
    contenders |= {f"{name}: Flower's": partial(whole, other) for name, other in theirs.items()}
    times = in_turn(contenders, turns)
    lines = []
    for name in rules:
        ours, floor = times[f"{name}: RobustStrategy"], times[f"{name}: rule and reading"]
        flower = times.get(f"{name}: Flower's")
        lines.append([*rows_of({name: ours}, floor)[0], f"{median(flower) / median(ours):.1f}" if flower else ""])
    reading = 1e3 * median(times["reading alone"])
    print(f"n = {n}, f = {f}, d = {len(start):,}, float32, {turns} turns; reading alone {reading:.0f} ms")
    print(table(["rule", "ms", "ratio to rule and reading", "middle half", "Flower's / ours"], lines))


class Rounds(pl.Callback):
    """Times whole rounds, by the clock and by the processor, and finds the memory that they need beside the data."""

    def __init__(self, warm_up: int):
        self.warm_up = warm_up
        self.seconds: list[float] = []
        self.work: list[float] = []
        self.before = self.extra = 0.0
        self.started = perf_counter(), process_time()

    def on_train_start(self, *_: Any) -> None:
        """Note what is there."""
        self.before = reset_peak(CPU) or 0.0

    def on_train_batch_start(self, *_: Any) -> None:
        """Start the clocks."""
        self.started = perf_counter(), process_time()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Stop them."""
        taken = perf_counter() - self.started[0], process_time() - self.started[1]
        if trainer.global_step > self.warm_up:
            self.seconds.append(taken[0])
            self.work.append(taken[1])

    def on_train_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Find the process that needs most."""
        own = torch.tensor([*self.work, peak(CPU) - self.before], dtype=torch.float64)
        *self.work, self.extra = (
            trainer.strategy.reduce(own, reduce_op="max") if trainer.world_size > 1 else own
        ).tolist()


def rounds_of(n_processes: int, count: int, overrides: list[str]) -> None:
    """Time the rounds of a run over so many processes, and print seconds and bytes."""
    torch.set_num_threads(1)
    config = compose(["run_dir=unused", "run_name=benchmark", "logger=none", *overrides])
    rounds = Rounds(warm_up=2)
    module, data = make_module(config), make_data(config)
    with TemporaryDirectory() as folder:
        more = BARE | {"accelerator": "cpu", "max_steps": 2 + count, "devices": n_processes}
        trainer = make_trainer(config, Path(folder), [rounds], **more)
        trainer.fit(module, datamodule=data)
    if trainer.is_global_zero:
        d = sum(value.numel() for value in trainable(module.model).values())
        print(json.dumps([data.federation.n, d, rounds.seconds, rounds.work, rounds.extra]))


def benchmark_processes(overrides: list[str], turns: int) -> None:
    """Compare rounds over two processes with rounds in one, in turns."""
    lines = []
    for experiment in ("boba_mnist", "raga_mnist_lenet", "fed_nga_mnist_lenet"):
        times: Times = {"1 process": [], "2 processes": []}
        work: Times = {name: [] for name in times}
        extra: dict[str, float] = {}
        n = d = 0
        for _ in range(turns):
            for name in times:
                words = [f"experiment={experiment}", *overrides]
                command = [sys.executable, __file__, "rounds", f"--processes={name[0]}", "--turns=6", *words]
                done = subprocess.run(
                    command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
                )
                if done.returncode:
                    raise SettingError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
                n, d, seconds, processor, extra[name] = json.loads(done.stdout.strip().splitlines()[-1])
                times[name] += seconds
                work[name] += processor
        one, alone = median(times["1 process"]), median(work["1 process"])
        for name, taken in times.items():
            low, _, high = quantiles(taken, n=4)
            matrix = extra[name] / (4 * n * d)
            lines.append(
                [
                    experiment,
                    name,
                    f"{1 / median(taken):.2f}",
                    f"{one / median(taken):.2f}",
                    f"{1 / high:.2f} to {1 / low:.2f}",
                    f"{alone / median(work[name]):.2f}",
                    f"{extra[name] / 2**20:.0f}",
                    f"{matrix:.2f}",
                ]
            )
    names = ["experiment", "", "rounds/s", "ratio", "middle half", "ratio of work", "MiB each", "of n x d numbers"]
    print(table(names, lines))
    print(
        "ratio of work: processor time of one process over that of the busier of two, which other load does not change"
    )


# What each command calls.
CALLS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "round": lambda given: benchmark_round(spelled(given.overrides), given.turns),
    "boba": lambda given: benchmark_boba(given.turns),
    "aggregators": lambda given: [*map(partial(benchmark_aggregators, turns=given.turns, names=given.names), given.d)],
    "simulation": lambda given: benchmark_simulation(spelled(given.overrides), given.rules, given.rounds),
    "scale": lambda given: benchmark_scale(given.sizes, spelled(given.overrides)),
    "startup": lambda given: benchmark_startup(given.turns),
    "flower": lambda given: benchmark_flower(given.turns),
    "processes": lambda given: benchmark_processes(spelled(given.overrides), given.turns),
    "rounds": lambda given: rounds_of(given.processes, given.turns, spelled(given.overrides)),
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = partial(parser.add_subparsers(dest="command", required=True).add_parser, allow_abbrev=False)
    rounds = add("round", help="a round against its floor")
    rounds.add_argument("overrides", nargs="*", help="as for train.py")
    rule = add("boba", help="BOBA's rule against one Gram matrix")
    every = add("aggregators", help="every rule against its floor")
    every.add_argument(
        "--d", type=int, nargs="+", default=[100_000, 1_000_000], help="lengths of updates, multiples of 10 from 1,000"
    )
    every.add_argument("--names", nargs="+", default=[], help="only these rules")
    startup = add("startup", help="from the command to the first computation")
    simulation = add("simulation", help="whole rounds against byzfl's")
    simulation.add_argument("--rules", nargs="+", default=list(BYZFL_RULES), choices=list(BYZFL_RULES))
    simulation.add_argument("--rounds", type=int, default=200, help="of ours, ten a turn, at least 40 (200)")
    simulation.add_argument("--threads", type=int, default=1, help="that both sides compute with")
    simulation.add_argument("overrides", nargs="*", help="as for train.py, before the options: another data or model")
    scale = add("scale", help="rounds of many clients")
    scale.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000], help="honest clients")
    scale.add_argument("overrides", nargs="*", help="as for train.py, before the options: another rule or attack")
    flower = add("flower", help="a Flower strategy against its rule and Flower's own strategies")
    several = add("processes", help="two processes against one")
    several.add_argument("overrides", nargs="*", help="as for train.py")
    part = add("rounds", help="what processes asks for: the rounds of one run, timed")
    part.add_argument("overrides", nargs="*", help="as for train.py")
    part.add_argument("--processes", type=int, default=1, help="over how many processes")
    several.add_argument("--turns", type=int, default=3, help="how often each is trained, for six rounds")
    part.add_argument("--turns", type=int, default=6, help="how many rounds")
    for command in (rounds, rule, every, startup, flower):
        command.add_argument("--turns", type=int, default=15, help="how often each contender is timed")
    given = parser.parse_args()
    if given.command == "simulation":
        if given.rounds < 40 or given.threads < 1:
            parser.error(
                f"--rounds must be at least 40, which make turns enough for a spread, and --threads 1, got "
                f"{given.rounds} and {given.threads}"
            )
        torch.set_num_threads(given.threads)
    elif given.command == "scale":
        if min(given.sizes) < 10:
            parser.error(f"--sizes must be at least 10, of which a tenth attack, got {min(given.sizes)}")
    elif given.turns < 2:
        parser.error(f"--turns must be at least 2, which have a spread, got {given.turns}")
    elif given.command == "aggregators" and any(d < 1000 or d % 10 for d in given.d):
        parser.error(f"--d must be multiples of 10, the classes of the server's samples, from 1,000, got {given.d}")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    with explained(), silence():
        CALLS[given.command](given)


if __name__ == "__main__":
    main()
