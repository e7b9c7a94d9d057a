"""Random settings: each run trains, or is refused in one line that names what was set."""

import random
import signal
import sys

import pytest
from omegaconf import OmegaConf

from lightning_fl.commands import train
from lightning_fl.contract import conf
from lightning_fl.run.config import CONF
from tests.commands.command import outcome

RUNS, BLOCKS, SECONDS = 120, 6, 30
SMALL = [
    *("f=2", "federation.n_clients=9", "federation.n_byzantine=2", "trainer.max_steps=2"),
    *("trainer.val_check_interval=1", "trainer.enable_progress_bar=false", "trainer.accelerator=cpu", "logger=none"),
    *("data_dir=data", "reference_dir=references", "hydra.run.dir=run"),
]
SYNTHETIC = [
    *("data=synthetic", "data.classes=3", "data.features=9", "data.n_train=90", "data.n_test=30"),
    *("data.server_samples=2", "model=mlp", "model.in_features=9", "model.n_classes=3", "model.hidden=[4]"),
]
QUADRATIC = [
    *("data=quadratic", "data.classes=3", "data.features=3", "data.n_train=90", "data.n_test=30"),
    *("data.server_samples=2", "model=quadratic", "model.n_classes=3"),
]
GROUPS = ("adversary", "aggregator", "client", "method", "partition", "schedule", "server")
VALUES = [
    *("0", "1", "-1", "2", "3", "1.5", "0.5", "-0.5", "1e30", "-1e30", "1e-300", "inf", "-inf", "nan", "1" + 21 * "0"),
    *("null", "few", "''", "true", "false", "[]", "{}", "[null]", "[1,2]", "[nan]", "[few]", "{a: 1}", "???"),
]
ADDED = [
    *(f"+trainer.{key}" for key in ("max_epochs", "min_steps", "fast_dev_run", "limit_train_batches", "max_time")),
    *(
        f"+trainer.{key}"
        for key in ("limit_val_batches", "limit_test_batches", "overfit_batches", "strategy", "plugins")
    ),
    *(f"+trainer.{key}" for key in ("gradient_clip_val", "accumulate_grad_batches", "logger", "callbacks", "profiler")),
    *(f"+trainer.{key}" for key in ("precision", "deterministic", "benchmark", "num_nodes", "inference_mode")),
    *("+server.nesterov", "+server.maximize", "+server.params", "+schedule.last_epoch", "+model.bias", "+unknown"),
    *("+client.unknown", "+aggregator.unknown", "+federation.unknown", "+data.partition", "+server._target_"),
]


class Late(BaseException):
    """A run hangs; nothing on the way out takes it for the user's error."""


def names(node, path=""):
    """Every setting and part in a configuration."""
    for key, value in node.items():
        if key not in ("defaults", "hydra", "logger", "data_dir", "run_dir", "accelerator", "devices", "_partial_"):
            yield f"{path}{key}"
            if isinstance(value, dict):
                yield from names(value, f"{path}{key}.")


def files():
    """What `names` are there by group and choice, and with no group."""
    found = {(): sorted(names(OmegaConf.to_container(OmegaConf.load(CONF / "train.yaml"))))}
    for group in [*GROUPS, "data", "model"]:
        for choice in conf.names(group):
            node = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{choice}.yaml"))
            node = node if group == "method" else {group: node}
            found[group, choice] = sorted(names(node))
    return found


def draw(rng, known):
    """A command line, and the words of which a refusal has one: what was drawn, beside the small federation."""
    chosen = {group: rng.choice(conf.names(group)) for group in GROUPS if rng.random() < 0.25}
    arguments = [*(SYNTHETIC if rng.random() < 0.9 else QUADRATIC), *(f"{g}={choice}" for g, choice in chosen.items())]
    parts = [(), ("data", "synthetic"), ("server", "sgd"), ("client", "gradient"), ("partition", "pathological")]
    parts += [part for part in chosen.items() if known[part]]
    words = {*chosen, *chosen.values()}
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        key = rng.choice(ADDED) if rng.random() < 0.15 else rng.choice(known[rng.choice(parts)])
        arguments.append(f"{key}={rng.choice(VALUES)}")
        path = key.lstrip("+").split(".")
        words |= {path[-1], f"Error: {path[0]}: "}  # another library's class may have words of its own
    for part in chosen.items():  # these may not fit the others, the federation for one
        words |= {key.rsplit(".", 1)[-1] for key in known[part]} | {key for key in known[()] if "." in key}
    return arguments, words


def fault(code, err, words, left):
    """What is wrong with how a run ended, if anything."""
    if code == 0:
        return f"says {err}" if err else None
    if code != 2:
        return f"ends with {code}: {err}"
    if not err.startswith("Error: ") or err.count("\n") != 1:
        return f"is refused in other words than one line: {err}"
    if not any(word in err for word in words):
        return f"is refused without a name: {err}"
    return f"is refused and leaves {left}" if left and "config.yaml" not in left else None  # it has that once it trains


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_run_trains_or_is_refused_in_one_line(block, monkeypatch, tmp_path, capsys):
    known, faults = files(), []
    monkeypatch.setattr("lightning_fl.run.page.write", lambda *_: {})
    monkeypatch.setenv("HYDRA_FULL_ERROR", "")

    def late(*_):
        raise Late(f"after {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, late)
    for number in range(block, RUNS, BLOCKS):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        arguments, words = draw(random.Random(number), known)
        monkeypatch.setattr(sys, "argv", ["train.py", *SMALL, *arguments])
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)  # of this process alone, however busy the machine
        try:
            code, _, err = outcome(train.main, capsys)
        except (Exception, Late) as error:
            code, err = f"{type(error).__name__}: {error}", capsys.readouterr().err
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        found = fault(code, err, words, [path.name for path in folder.rglob("*")])
        if found:
            faults.append(f"train.py {' '.join(arguments)}\n    {found}")
    signal.signal(signal.SIGVTALRM, before)
    assert not faults, "\n".join(faults)
