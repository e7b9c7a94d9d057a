"""Every file of sweeps/ is one that W&B accepts, and every value of it composes."""

import re
from pathlib import Path

import pytest
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

from lightning_fl.contract import conf
from lightning_fl.run.check import checked

FILES = sorted((Path(__file__).resolve().parents[1] / "sweeps").glob("*.yaml"))
ASKED = {"boba_p_min", "boba_f", "raga_k", "fed_nga_rate", "frpg_lambda"}
ASKED |= {"heterogeneity", "rule_by_attack", "server_samples"}

# W&B's sweep schema (github.com/wandb/sweeps, src/sweeps/config/schema.json), in so far as files here use it.
KEYS = {
    "program": str,
    "command": list,
    "project": str,
    "name": str,
    "description": str,
    "method": str,
    "metric": dict,
    "run_cap": int,
    "parameters": dict,
    "early_terminate": dict,
}
# distribution: required, optional; None where W&B infers it
DISTRIBUTIONS = {
    None: [{"value"}, {"values"}, {"values", "probabilities"}, {"min", "max"}],
    "constant": [{"value"}],
    "categorical": [{"values"}],
    "categorical_w_probabilities": [{"values", "probabilities"}],
    "int_uniform": [{"min", "max"}],
    "uniform": [{"min", "max"}],
    "log_uniform_values": [{"min", "max"}],
    "q_uniform": [{"min", "max"}, {"min", "max", "q"}],
    "q_log_uniform_values": [{"min", "max"}, {"min", "max", "q"}],
}


def load(path):
    return yaml.safe_load(path.read_text())


def ends(spec):
    """Values of a parameter; of a distribution its ends."""
    return spec["values"] if "values" in spec else [spec["value"]] if "value" in spec else [spec["min"], spec["max"]]


def told(values):
    """What W&B's own agent tells the program for ${args_no_hyphens}."""
    return create_sweep_command_args({"args": {name: {"value": value} for name, value in values.items()}})[
        "args_no_hyphens"
    ]


def test_none_is_missing():
    assert {path.stem for path in FILES} >= ASKED


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_keeps_the_schema(path):
    content = load(path)
    assert set(content) <= set(KEYS)
    assert all(type(value) is KEYS[key] for key, value in content.items())
    assert {"program", "command", "method", "metric", "parameters"} <= set(content)
    assert content["program"] == "lightning-fl"
    assert content["command"] == ["${env}", "${program}", "train", "${args_no_hyphens}"]
    assert content["method"] in {"grid", "random", "bayes"}
    assert set(content["metric"]) == {"name", "goal"}
    assert content["metric"]["goal"] in {"minimize", "maximize"}
    assert content["name"] == path.stem
    assert content["project"] == conf.compose("run_dir=unused", "run_name=unused").logger.wandb.project
    assert (content["method"] == "grid") == ("run_cap" not in content), "random and bayes know no end"
    for name, spec in content["parameters"].items():
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name)
        assert set(spec) - {"distribution"} in DISTRIBUTIONS[spec.get("distribution")], name
        if "min" in spec:
            assert content["method"] != "grid"
            assert type(spec["min"]) is type(spec["max"]) in (int, float)
            assert spec["min"] < spec["max"]
            assert spec["min"] > 0 or "log" not in spec["distribution"]
        else:
            assert isinstance(spec.get("values", []), list)
            assert all(isinstance(value, str | int | float) for value in ends(spec))
    assert any("value" not in spec for spec in content["parameters"].values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_head_says_what_it_asks_and_costs(path):
    head = re.match(r"(# .*\n|#\n)+", path.read_text())[0]
    assert re.search(r"\?", head.split("\n")[0] + head.split("\n")[1])
    assert f"python scripts/sweep.py sweeps/{path.stem}.yaml" in head
    assert f"wandb sweep sweeps/{path.stem}.yaml" in head
    content = load(path)
    counts = [len(spec["values"]) for spec in content["parameters"].values() if "values" in spec]
    total = content.get("run_cap", 1)
    for count in counts if "run_cap" not in content else []:
        total *= count
    assert re.search(rf"\b{total} runs, .*\b(minutes|hours?)\b", head), f"{total} runs"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_composes_into_a_rule_that_fits(path):
    parameters = load(path)["parameters"]
    first = {name: ends(spec)[0] for name, spec in parameters.items()}
    last = {name: ends(spec)[-1] for name, spec in parameters.items()}
    points = [first, last, *(first | {name: value} for name, spec in parameters.items() for value in ends(spec)[1:])]
    for point in points:
        config = checked(told(point))
        for name, value in point.items():
            if "." in name:
                assert OmegaConf.select(config, name) == (float(value) if value == "inf" else value)
        if config.aggregator:
            instantiate(config.aggregator).check(instantiate(config.federation).n, 10)


def test_radius_follows_lambda():
    config = checked(told({"experiment": "frpg_mnist_label_flip", "client.penalty": 0.25}))
    assert config.aggregator.radius == 0.25
