"""How fast a device computes rounds, where their time goes, and what the choices of a client's engine cost there."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from threading import BrokenBarrierError
from time import perf_counter
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from lightning_fl.data.tensor_data import TensorData
from lightning_fl.device.agreement import ACCELERATORS, ALONE, QUIET
from lightning_fl.device.memory import peak, reset_peak
from lightning_fl.network.parameters import trainable
from lightning_fl.network.threads import set_threads
from lightning_fl.partition.iid import Iid
from lightning_fl.run.assemble import make, make_module, make_trainer
from lightning_fl.run.config import compose
from lightning_fl.run.fit import silence
from lightning_fl.updates.products import gram_matrix

Record = dict[str, Any]

_FEW = ["federation.n_clients=20", "federation.n_byzantine=4", "f=4", "client.batch_size=32"]
_SMALL = (1, 28, 28)
_COLOUR = (3, 32, 32)
# By name: the shape of a sample, the number of training samples, and settings.
JOBS: dict[str, tuple[tuple[int, ...], int, list[str]]] = {
    "default": (_SMALL, 4000, []),
    "boba_mnist": (_SMALL, 60_000, ["aggregator=boba"]),
    "lenet, 20 clients": (_SMALL, 4000, ["model=lenet", "aggregator=geometric_median", *_FEW]),
    "cnn, 20 clients": (_COLOUR, 4000, ["model=cnn", "aggregator=geometric_median", *_FEW]),
    "resnet20, 20 clients": (_COLOUR, 4000, ["model=resnet20", "aggregator=geometric_median", *_FEW]),
    "boba_cifar10": (_COLOUR, 50_000, ["model=cnn", "aggregator=boba"]),
    "default, 1,000 clients": (_SMALL, 20_000, ["federation.n_clients=1000", "federation.n_byzantine=100", "f=110"]),
}
# Clients at a time, for each model: by the project's own choice, by vmap in chunks, and in a loop.
CHUNKS: tuple[int | None, ...] = (None, 32, 8, 1)
MODELS = {"mlp": _SMALL, "lenet": _SMALL, "cnn": _COLOUR, "resnet20": _COLOUR}
# Rows and columns of the matrices whose inner products are timed.
SIZES = [(115, 199_210), (1100, 40_000), (24, 2_000_000)]


class Timer(pl.Callback):
    """Times rounds, after some that warm up, for some seconds.

    Args:
        seconds: How long.
        begin: Called when the rounds that warm up are over.
        warm_up: How many these are; fewer where they take longer than five times the seconds.
    """

    def __init__(self, seconds: float, begin: Callable[[], Any] = lambda: None, warm_up: int = 3):
        self.seconds, self.begin, self.warm_up = seconds, begin, warm_up
        self.rounds = 0
        self.taken = self.started = 0.0
        self.phases: dict[str, list[float]] = {}
        self.waits: list[str] = []
        self.memory: float | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note each place of the round's code that waits for the device, in one round before any is timed."""
        self.entered = perf_counter()
        step, self.device = pl_module.training_step, trainer.strategy.root_device

        def watched(*arguments: Any) -> Any:
            if self.device.type != "cuda" or trainer.global_step != self.warm_up - 1:
                return step(*arguments)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    return step(*arguments)
                finally:
                    torch.cuda.set_sync_debug_mode("default")
                    waits = [w for w in said if "called a synchronizing" in str(w.message)]
                    self.waits = [f"{Path(w.filename).name}:{w.lineno}" for w in waits]

        pl_module.training_step = watched  # type: ignore[method-assign]

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        """Begin to time, go on, or end."""
        slow = not self.started and perf_counter() - self.entered > 5 * self.seconds
        if trainer.global_step == self.warm_up or slow:
            self.warm_up = trainer.global_step
            self.begin()
            self._wait()
            self.before = reset_peak(self.device)
            self.started = perf_counter()
        elif self.started:
            for name, value in outputs["metrics"].items():
                if name.startswith("seconds/"):
                    self.phases.setdefault(name.removeprefix("seconds/"), []).append(value)
            if perf_counter() - self.started >= self.seconds:
                self._wait()
                self.taken = perf_counter() - self.started
                self.rounds = trainer.global_step - self.warm_up
                self.memory = None if self.before is None else peak(self.device) - self.before
                trainer.should_stop = True

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def rounds_of(
    shape: tuple[int, ...],
    n_samples: int,
    overrides: list[str],
    accelerator: str,
    seconds: float,
    begin: Callable[[], Any] = lambda: None,
) -> Record:
    """Time rounds of a federation on random pictures, without evaluations and files.

    Args:
        shape: Shape of a sample.
        n_samples: Number of training samples.
        overrides: Overrides as for train.
        accelerator: Lightning's name of the device.
        seconds: How long, beside what starts and warms up.
        begin: Called when the rounds are about to be timed.

    Returns:
        Rounds per second, milliseconds by phase, bytes beside what was there before the rounds, and where the device
        was waited for in one round.
    """
    config = compose([*ALONE, f"trainer.accelerator={accelerator}", "partition=iid", "server.lr=0.001", *overrides])
    draw = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (n_samples, *shape), generator=draw, dtype=torch.uint8)
    targets, federation = torch.arange(n_samples) % 10, make(config.federation)
    data = TensorData((pictures, targets), (pictures[:100], targets[:100]), partition=Iid(), federation=federation)
    timer, module = Timer(seconds, begin), make_module(config)
    with TemporaryDirectory() as folder, silence():
        trainer = make_trainer(config, Path(folder), [timer], max_steps=100_000, **QUIET)
        trainer.fit(module, datamodule=data)
    if module.diverged:
        raise ArithmeticError(module.diverged)
    d = sum(value.numel() for value in trainable(module.model).values())
    return {
        "clients": data.federation.n,
        "d": d,
        "rounds": timer.rounds,
        "rounds per second": timer.rounds / timer.taken,
        "milliseconds": {name: 1e3 * mean(values) for name, values in timer.phases.items()},
        "bytes": timer.memory,
        "waits": dict(Counter(timer.waits)),
    }


def jobs(device: torch.device, seconds: float = 3.0) -> Iterator[Record]:
    """Time each job on the device and on the CPU, in turn."""
    for name, (shape, n, overrides) in JOBS.items():
        for where in dict.fromkeys([device.type, "cpu"]):
            yield {"job": name, "on": where, **rounds_of(shape, n, overrides, ACCELERATORS[where], seconds)}


def engines(device: torch.device, seconds: float = 1.0) -> Iterator[Record]:
    """Time the clients' phase for each model and number of clients at a time; see `CHUNKS`."""
    for (model, shape), chunk in product(MODELS.items(), CHUNKS):
        own = [f"model={model}", "aggregator=average", *_FEW, f"client.client_chunk={chunk or 'null'}"]
        found = rounds_of(shape, 4000, own, ACCELERATORS[device.type], seconds)
        yield {"model": model, "clients at a time": chunk or "chosen", "ms": found["milliseconds"]["clients"]}


def products(device: torch.device, turns: int = 5) -> Iterator[Record]:
    """Time a matrix of all inner products in float64, as rules ask for it, and in float32 with its error."""
    for n, d in SIZES:
        rows = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).to(device)
        exact = rows.double() @ rows.double().T

        def blocks(rows: Tensor = rows) -> Tensor:
            """Products of short pieces in float32, summed in float64."""
            return torch.stack([part @ part.T for part in rows.split(4096, dim=1)]).sum(0, dtype=torch.float64)

        contenders = {
            "as rules ask": lambda rows=rows: gram_matrix(rows),
            "float64": lambda rows=rows: rows.double() @ rows.double().T,
            "float32": lambda rows=rows: rows @ rows.T,
            "float32, summed in float64": blocks,
        }
        for name, call in contenders.items():
            error = float((call().double() - exact).abs().max() / exact.abs().max())
            yield {"n": n, "d": d, "product": name, "ms": 1e3 * timed(call, device, turns), "error": error}


def timed(function: Callable[[], Any], device: torch.device, turns: int) -> float:
    """Median seconds of a call."""
    taken = []
    for _ in range(turns + 1):
        started = perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(perf_counter() - started)
    return median(taken[1:])


def together(device: torch.device, seconds: float = 3.0, processes: Sequence[int] = (1, 4)) -> Iterator[Record]:
    """Time the default job in several processes at once on one device: all their rounds per second."""
    context, job = get_context("spawn"), JOBS["default"]
    for workers in processes:
        barrier = context.Barrier(workers, timeout=120)
        with ProcessPoolExecutor(workers, context, _ready, (barrier,)) as pool:
            runs = [pool.submit(_one, *job, ACCELERATORS[device.type], seconds) for _ in range(workers)]
            yield {"processes": workers, "rounds per second": sum(run.result()["rounds per second"] for run in runs)}


_barrier: Any = None


def _ready(barrier: Any) -> None:
    global _barrier
    _barrier = barrier
    set_threads(1)


def _one(shape: tuple[int, ...], n_samples: int, overrides: list[str], accelerator: str, seconds: float) -> Record:
    def begin() -> None:
        with suppress(BrokenBarrierError):  # another one has failed, which says why
            _barrier.wait()

    return rounds_of(shape, n_samples, overrides, accelerator, seconds, begin)
