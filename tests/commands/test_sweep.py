"""Sweep files run without an account: the command line, with the training replaced where it does not matter."""

import csv
import json
import math
import re
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import pytest
import yaml
from pytorch_lightning.loggers import CSVLogger
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

from lightning_fl import SettingError
from lightning_fl.commands import sweep as script
from lightning_fl.commands import train
from lightning_fl.run.check import checked
from lightning_fl.run.config import spelled
from lightning_fl.run.lock import held
from lightning_fl.study import processes, sweep, sweep_file
from lightning_fl.study.runner import Runner
from tests.logger import offline

SMALL = {
    "data": {"value": "synthetic"},
    "model.hidden": {"value": [8]},
    "trainer.max_steps": {"value": 2},
    "trainer.accelerator": {"value": "cpu"},
}
RATE = {"distribution": "log_uniform_values", "min": 0.01, "max": 1.0}


COMPOSE = cache(checked)  # the slow part, where nothing is trained


def content(method="grid", parameters=None, **more):
    return {
        "program": "scripts/train.py",
        "command": ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"],
        "method": method,
        "metric": {"name": "final/accuracy", "goal": "maximize"},
        "parameters": SMALL | (parameters or {}),
        **more,
    }


@pytest.fixture
def command(tmp_path, monkeypatch, typed):
    """Run sweep.py on a file of this content."""
    monkeypatch.setattr(script, "stop_when_told", lambda: None)

    def run(file, *arguments):
        if file is not None:
            (tmp_path / "x.yaml").write_text(file if isinstance(file, str) else yaml.safe_dump(file, sort_keys=False))
        return typed(script.main, "sweep.py", "x.yaml", *arguments)

    return run


@pytest.fixture
def trained(monkeypatch):
    """Replace the training by a formula; gives what each run was told, and a plan of what goes wrong."""
    started = []

    def start(self, run):
        future = Future()
        with held(run.folder):
            if len(started) == start.kill_at:
                raise KeyboardInterrupt
            future.set_result(_exit_code(run))
        self.busy[future] = ThreadPoolExecutor()
        return future

    def _exit_code(run):
        values = dict(override.split("=", 1) for override in run.overrides)
        started.append(values)
        (run.folder / "train.log").write_text("RuntimeError: no luck\n")
        if values.get("seed") in start.fails:
            return 1
        diverged = values.get("adversary") == "gaussian"
        accuracy = None if diverged else 1 - abs(math.log10(float(values.get("server.lr", 0.1)) / 0.2)) / 4
        status = "diverged" if diverged else "completed"
        summary = {"status": status, "accuracy": accuracy, "mrd": None, "seconds": 1.0, "rounds": 2}
        text = json.dumps(summary | {"last_evaluation": {"accuracy": accuracy}})
        (run.folder / "summary.json").write_text(text)
        return 0

    start.kill_at, start.fails = None, set()
    monkeypatch.setattr(processes.Processes, "train", start)
    monkeypatch.setattr(sweep, "checked", COMPOSE)
    return started, start


def table(folder):
    return list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))


@pytest.mark.drawn
def test_a_grid_from_end_to_end_then_nothing_is_left_to_run(command, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    file = content(parameters={"aggregator": {"values": ["average", "boba"]}, "seed": {"values": [3]}})
    settings = ["--workers", "2", "trainer.val_check_interval=1", "logger=wandb"]
    code, out, err = command(file, *settings)
    assert code == 0, err
    folder = tmp_path / "runs/sweeps/x"
    rows = table(folder)
    assert {(row["aggregator"], row["seed"], row["status"]) for row in rows} == {
        ("average", "3", "completed"),
        ("boba", "3", "completed"),
    }
    assert [row["aggregator"] for row in rows] == ["average", "boba"]  # as the file has them
    for row in rows:
        summary = json.loads((folder / row["folder"] / "summary.json").read_text())
        assert summary["accuracy"] == float(row["accuracy"])
        config = yaml.safe_load((folder / row["folder"] / "config.yaml").read_text())
        assert config["aggregator"]["_target_"].lower().endswith(row["aggregator"])
        assert (config["seed"], config["trainer"]["val_check_interval"], config["model"]["hidden"]) == (3, 1, [8])
        (path,) = (folder / row["folder"]).glob("wandb/offline-run-*/run-*.wandb")
        made, told, history = offline.read(path)
        assert (made.run_group, made.job_type) == ("x", "train")
        assert made.display_name == f"aggregator={row['aggregator']} seed=3"
        assert told["names"]["rule"] == row["aggregator"]
        assert told["model"]["hidden"] == [8]
        assert "run_dir" not in told
        curve = {entry["trainer/global_step"]: entry["recall/3"] for entry in history if "recall/3" in entry}
        metrics = list(csv.DictReader((folder / row["folder"] / "metrics.csv").read_text().splitlines()))
        assert {step: curve[step] for step in (1, 2)} == {step: float(metrics[step - 1]["recall/3"]) for step in (1, 2)}
        assert [e["final/accuracy"] for e in history if "final/accuracy" in e] == [pytest.approx(summary["accuracy"])]
    assert re.search(r"aggregator +seed +accuracy +status", out)
    assert "| boba | 3 |" in (folder / "sweep.md").read_text()
    assert (folder / "sweep.png").stat().st_size > 10_000

    monkeypatch.setattr(processes.Processes, "train", lambda *_: pytest.fail("a finished run was started again"))
    again = command(None, *settings)
    assert again[0] == 0
    assert table(folder) == rows


@pytest.mark.parametrize("name", ["final/accuracy", "final/validation_accuracy"])
def test_settings_are_chosen_on_validation_samples_where_there_are_some(command, tmp_path, name):
    file = content(parameters={"aggregator": {"values": ["average", "median"]}}) | {"metric": {"name": name}}
    code, _, err = command(file, "data.validation_share=0.2")
    assert code == 0, err
    (rows, text) = table(tmp_path / "runs/sweeps/x"), (tmp_path / "runs/sweeps/x/sweep.md").read_text()
    shares = [float(row["validation_accuracy"]) for row in rows]
    lowest = min(rows, key=lambda row: float(row["validation_accuracy"]))
    assert f"lowest validation_accuracy: {100 * min(shares):.2f} % at `aggregator={lowest['aggregator']}`." in text
    page = (tmp_path / "runs/sweeps/x/sweep.html").read_text()
    assert all(f'<a href="./{row["folder"]}/report.html">' in page for row in rows)
    assert shares != [float(row["accuracy"]) for row in rows]
    if name == "final/validation_accuracy":
        code, _, err = command(file)
        assert code == 2
        assert "needs samples for validation" in err


def test_metrics_are_what_train_logs(typed, monkeypatch):
    names = set()
    monkeypatch.setattr(CSVLogger, "log_metrics", lambda self, metrics, step=None: names.update(metrics))
    logger = ["logger=none", "++logger._target_=pytorch_lightning.loggers.CSVLogger", "++logger.save_dir=x"]
    settings = [*(f"{name}={spec['value']}" for name, spec in SMALL.items()), "reference=run", "hydra.run.dir=y"]
    settings.append("data.validation_share=0.2")
    assert typed(train.main, "train.py", *settings, "aggregator=boba", *logger)[0] == 0
    assert set(sweep_file.METRICS) <= names


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_stopped_search_goes_on_as_if_it_had_not(command, tmp_path, trained, method):
    started, plan = trained
    file = content(method, {"server.lr": RATE, "aggregator": {"values": ["average", "median"]}}, run_cap=8)
    assert command(file, "--folder", "whole")[0] == 0
    whole = list(started)
    assert len(whole) == 8
    started.clear()
    plan.kill_at = 5
    code, out, _ = command(file, "--folder", "stopped")
    assert code == 130
    assert "completed" in out
    plan.kill_at = None
    assert command(file, "--folder", "stopped")[0] == 0
    assert started == whole
    assert table(tmp_path / "whole") == table(tmp_path / "stopped")
    assert command(file, "--folder", "stopped", "--trials", "9")[0] == 0
    assert len(started) == 9
    code, out, _ = command(file, "--folder", "stopped", "--trials", "4")  # fewer than there are
    assert code == 0
    assert [line[:5] for line in out.splitlines() if line.startswith("[")] == [f"[{k}/4]" for k in (1, 2, 3, 4)]
    rates = [float(values["server.lr"]) for values in started]
    assert all(0.01 <= rate <= 1 for rate in rates)
    assert len(set(rates)) == 9


def test_a_file_says_each_thing_once(command, tmp_path):
    (tmp_path / "x.yaml").write_text("program: scripts/train.py\nmethod: grid\nmethod: random\n")
    with pytest.raises(SettingError, match="cannot be read: method occurs twice"):
        sweep_file.read(tmp_path / "x.yaml")


def test_bayes_comes_close(command, trained):
    assert command(content("bayes", {"server.lr": RATE}, run_cap=22))[0] == 0
    distances = [abs(math.log10(float(values["server.lr"]) / 0.2)) for values in trained[0]]
    assert sum(distances[-10:]) / 10 < 0.25  # of rates that are log-uniform: (0.7^2 + 1.3^2) / 4 = 0.55


def test_several_at_once_and_equal_draws_are_trained_once(command, tmp_path, trained):
    file = content("bayes", {"aggregator": {"values": ["average", "median"]}})
    assert command(file, "--workers", "3", "--trials", "7")[0] == 0
    assert len(trained[0]) == 2
    assert len(table(tmp_path / "runs/sweeps/x")) == 2


def test_its_runs_are_trained_where_it_is_told(command, trained, monkeypatch):
    asked = []

    class Here(Runner):
        def _engine(self, fresh):
            asked.append((self.workers, self.on))
            return Runner(self.workers)._engine(fresh)

    monkeypatch.setattr(script, "Runner", Here)
    code, out, err = command(content(parameters={"seed": {"values": [1, 2]}}), "--on", "ray", "--workers", "2")
    assert code == 0, err
    assert asked == [(2, "ray")]
    assert out.count("completed") == 2


def test_failed_and_diverged_runs_are_told_and_only_failed_ones_tried_again(command, tmp_path, trained):
    started, plan = trained
    plan.fails = {"1"}
    parameters = {"adversary": {"values": ["ipm", "gaussian"]}, "seed": {"values": [0, 1]}}
    code, out, _ = command(content(parameters=parameters))
    assert code == 1
    assert "failed: RuntimeError: no luck" in out
    statuses = [(row["adversary"], row["seed"], row["status"]) for row in table(tmp_path / "runs/sweeps/x")]
    assert statuses == [
        ("ipm", "0", "completed"),
        ("ipm", "1", "failed"),
        ("gaussian", "0", "diverged"),
        ("gaussian", "1", "failed"),
    ]
    plan.fails = set()
    started.clear()
    assert command(None)[0] == 0
    assert [values["seed"] for values in started] == ["1", "1"]
    started.clear()
    random = content("random", {"adversary": {"values": ["gaussian"]}, "server.lr": RATE}, run_cap=3)
    assert command(random, "--folder", "diverged")[0] == 0
    assert [row["status"] for row in table(tmp_path / "diverged")] == ["diverged"] * 3


def test_runs_of_other_settings_in_the_folder_are_told(command, trained):
    file = content(parameters={"seed": {"values": [0, 1]}})
    assert "Left out" not in command(file)[1]
    out = command(file, "trainer.max_steps=3", "--trials", "1")[1]
    assert "Left out: 2 runs of other settings there; --folder keeps sweeps apart." in out


def test_a_file_without_a_command_has_that_of_wandb(command, trained):
    file = content(parameters={"seed": {"values": [0, 1]}})
    expected = command(file, "--dry-run")
    del file["command"]
    assert command(file, "--dry-run") == expected
    assert expected[0] == 0
    # W&B's default command ends in ${args}.
    assert spelled(["--seed=1", "--model.hidden=[8]", "--config-dir=conf", "--multirun"]) == [
        "seed=1",
        "model.hidden=[8]",
        "--config-dir=conf",
        "--multirun",
    ]


def test_settings_of_the_command_line_stand_instead_of_the_files(command, trained):
    parameters = {"seed": {"values": [0, 1]}, "aggregator": {"values": ["average", "median"]}}
    file = content(parameters=parameters)
    file["command"].insert(3, "trainer.val_check_interval=2")
    code, out, _ = command(file, "--dry-run", "+aggregator=boba", "trainer.max_steps=9")
    assert code == 0
    assert out.splitlines()[-2:] == [
        f"python scripts/train.py trainer.val_check_interval=2 aggregator=boba trainer.max_steps=9 "
        f"data=synthetic 'model.hidden=[8]' trainer.accelerator=cpu seed={seed}"
        for seed in (0, 1)
    ]
    assert not trained[0]


def test_train_is_told_what_wandbs_agent_tells_it(tmp_path):
    values = {"server.lr": 1e-05, "trainer.enable_progress_bar": False, "model.hidden": [8, 4], "aggregator": "boba"}
    (tmp_path / "x.yaml").write_text(
        yaml.safe_dump(content(parameters={n: {"values": [v]} for n, v in values.items()}))
    )
    read = sweep.Sweep(tmp_path / "x.yaml", tmp_path)
    (run,) = sweep.grid(read, None)
    constants = {name: spec["value"] for name, spec in SMALL.items()}
    told = create_sweep_command_args({"args": {name: {"value": value} for name, value in (constants | values).items()}})
    assert set(run.overrides) == set(told["args_no_hyphens"])


@pytest.mark.parametrize(
    "told",
    [
        {"program": "lightning-fl"},
        {"program": "lightning-fl", "command": ["${env}", "${program}", "train", "${args_no_hyphens}"]},
        {"command": ["${env}", "lightning-fl", "train", "${args_no_hyphens}"]},
        {"command": ["${env}", "${interpreter}", "-m", "lightning_fl", "train", "${args_no_hyphens}"]},
    ],
)
def test_a_file_may_name_the_installed_command(tmp_path, told):
    file = {key: value for key, value in content().items() if key not in ("program", "command")} | told
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(file))
    assert sweep.Sweep(tmp_path / "x.yaml", tmp_path).fixed == sweep.Sweep(write(tmp_path), tmp_path).fixed


def write(folder):
    (folder / "usual.yaml").write_text(yaml.safe_dump(content()))
    return folder / "usual.yaml"


def test_words_before_the_program_are_not_the_programs(tmp_path):
    words = ["${env}", "python", "-u", "${program}", "seed=4", "${args_no_hyphens}"]
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(content(command=words)))
    assert sweep.Sweep(tmp_path / "x.yaml", tmp_path).fixed[0] == "seed=4"


def test_a_run_that_is_drawn_again_counts_as_a_trial(command, trained):
    code, out, _ = command(content("random", {"aggregator": {"values": ["median"]}}, run_cap=3))
    assert code == 0
    assert len(trained[0]) == 1
    assert [line.split("]")[0] for line in out.splitlines() if line.startswith("[")] == ["[1/3", "[2/3", "[3/3"]
    assert out.count("(found)") == 2


def test_early_terminate_is_left_to_wandb(command, trained):
    file = content("random", {"server.lr": RATE}, run_cap=1, early_terminate={"type": "hyperband", "min_iter": 3})
    code, out, _ = command(file)
    assert code == 0
    assert "early_terminate is ignored" in out


@pytest.mark.parametrize(
    ("spec", "u", "value"),
    [
        ({"min": 2, "max": 5}, 0.49, 3),
        ({"min": 2, "max": 5}, 1.0, 5),
        ({"min": 2.0, "max": 4.0}, 0.25, 2.5),
        ({"min": 2, "max": 4, "distribution": "uniform"}, 0.25, 2.5),
        ({"min": 0.01, "max": 1.0, "distribution": "log_uniform_values"}, 0.5, 0.1),
        ({"distribution": "normal", "mu": 1.0, "sigma": 2.0}, 0.5, 1.0),
        ({"distribution": "normal"}, 0.8413447, 1.0),
    ],
)
def test_distributions_are_wandbs(spec, u, value):
    got = sweep_file.axis("x", spec, "random")(u)
    assert got == pytest.approx(value, abs=1e-6)
    assert isinstance(got, int) == isinstance(value, int)


def test_a_grid_lists_whole_numbers():
    assert sweep_file.axis("x", {"min": 2, "max": 4}, "grid") == [2, 3, 4]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("a: [", "x.yaml cannot be read"),
        ("", "needs program: scripts/train.py, or command: .*lightning-fl, train.*, got None"),
        (content() | {"program": "lightning-fl"}, "needs program: .*, got .* lightning-fl"),
        (content() | {"command": 5}, r"needs \$\{args_no_hyphens\} in command, got 5"),
        (content(metric={"name": ["accuracy"]}), "needs metric with name final/accuracy"),
        (content(method="annealing"), "needs method grid, random, bayes, got annealing"),
        (content(metric={"name": "loss"}), "needs metric with name final/accuracy.*got {'name': 'loss'}"),
        (content(metric={"name": "accuracy", "goal": "up"}), "metric.goal minimize or maximize"),
        ({k: v for k, v in content().items() if k != "metric"}, "needs metric with name final/accuracy.*got None"),
        (content(metric={"name": "final/mrd"}), "mrd of x needs a reference, got none; add reference=run"),
        (content(parametrs={}), "only the keys program.*got program, .*parametrs"),
        (content() | {"parameters": {}}, "needs parameters, got {}"),
        (content() | {"parameters": ["server.lr"]}, r"needs parameters, got \['server.lr'\]"),
        (content() | {"command": ["${program}"]}, r"needs \$\{args_no_hyphens\} in command, got \['\$\{program\}'\]"),
        (content(run_cap=0), "run_cap at least 1, got 0"),
        (content("random", {"server.lr": RATE}), "random needs a number of runs, got none; give --trials"),
        (
            content(parameters={"aggregatr": {"values": ["boba"]}}),
            "no setting aggregatr; did you mean aggregator.*valid",
        ),
        (content(parameters={"server.lrr": {"values": [1]}}), "no setting server.lrr; did you mean lr.*momentum"),
        (content(parameters={"aggregator": {"values": ["boba", "bobba"]}}), "aggregator bobba; did you mean boba"),
        (content(parameters={"server.lr": {"values": [0.1, "fast"]}}), "server.lr needs a number, got 'fast'"),
        (
            content(parameters={"aggregator": {"value": "boba"}, "aggregator.p_min": {"values": [-0.5, 3]}}),
            "boba needs p_min <= 0",
        ),
        (content("bayes", {"server.lr": {"min": 1, "max": 2}, "seed": {"values": ["a"]}}, run_cap=1), "seed needs"),
        (content(parameters={"server.lr": RATE}), "server.lr is log_uniform_values, which a grid cannot list"),
        *(
            (
                content(parameters={"data.validation_share": {"values": values}}),
                "needs data.validation_share in all runs",
            )
            for values in (["null", 0.2], [0.2, "null"])
        ),
    ],
)
def test_a_file_that_cannot_run_is_refused_before_the_first_run(command, trained, file, message):
    code, _, err = command(file)
    assert code == 2
    assert re.search(message, err, re.DOTALL), err
    assert "Traceback" not in err
    assert not trained[0]


def test_a_file_that_is_not_there_is_named_with_those_that_are(command, tmp_path):
    (tmp_path / "y.yaml").touch()
    code, _, err = command(None)
    assert code == 2
    assert (
        "needs a file, got x.yaml (No such file or directory); files there: y.yaml; lightning-fl init FOLDER brings"
        in err
    )


def test_a_file_is_all_that_is_required(typed):
    code, _, err = typed(script.main, "sweep.py")
    assert code == 2
    assert "the following arguments are required: file\n" in err


@pytest.mark.parametrize("option", ["--trials", "--workers"])
def test_counts_are_at_least_one(command, option):
    code, _, err = command(content(parameters={"seed": {"values": [0]}}), option, "0")
    assert code == 2
    assert "must be at least 1" in err


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"distribution": "beta"}, "x has distribution beta, which is not known here; known: constant"),
        ({"distribution": "q_uniform", "min": 1, "max": 2}, "which is not known here"),
        ({"min": 1}, "takes max, min, got min"),
        ({"value": 1, "min": 3}, r"x \(constant\) takes value, got value, min"),
        ({"values": 3}, "needs a list of values, got 3"),
        ({"values": []}, "needs a list of values"),
        ({"values": [None, 3]}, 'write null as "null"'),
        ({"min": 3, "max": 1}, "needs min < max"),
        ({"min": 0.0, "max": 1.0, "distribution": "log_uniform_values"}, "needs 0 < min < max"),
        ({"min": "1e-3", "max": 1.0}, "needs numbers, got .* to YAML 1e-3 is a word"),
        ({"min": 0.5, "max": 3, "distribution": "int_uniform"}, "needs whole numbers"),
        ({"distribution": "normal", "sigma": 0}, "sigma above 0"),
        ({"parameters": {"f": {"value": 1}}}, "x is nested, which train.py cannot read; write x.f"),
        ([1, 2], "needs a name, and value, values or a distribution"),
    ],
)
def test_a_parameter_that_is_not_in_order_is_named(spec, message):
    with pytest.raises(SettingError, match=message):
        sweep_file.axis("x", spec, "random")
