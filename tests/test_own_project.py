"""A project of one's own, as examples/own_project shows it: its names stand beside ours everywhere."""

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.commands import sweep
from lightning_fl.contract import ONLY, conf
from lightning_fl.contract.inputs import found_inputs
from lightning_fl.run import config
from lightning_fl.run.assemble import make
from lightning_fl.run.check import checked
from lightning_fl.run.identity import identity
from tests.commands.command import outcome
from tests.starting import Started

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the example; its folder is the working folder."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "own_project", folder, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(config.OWN, raising=False)
    return folder


def command(*words):
    """Run a module in the working folder; gives exit code and all that it printed."""
    process = Started("-m", *words)
    out, err = process.communicate()
    return process.returncode, out + err


def test_its_names_are_valid_beside_ours(project):
    assert {"my_rule", "krum"} <= set(config.choices("aggregator"))
    assert config.choices("aggregator") == sorted(config.choices("aggregator"))
    given = checked(["experiment=my_setting", "+aggregator=my_rule", "aggregator.f=2"])
    assert (given.aggregator["_target_"], given.aggregator.f) == ("my_rule.MyRule", 2)
    assert len(identity(given)) == 16
    with pytest.raises(SettingError, match=r"aggregator.f needs a whole number, got 'few'"):
        checked(["aggregator=my_rule", "aggregator.f=few"])
    with pytest.raises(SettingError, match="there is no aggregator my_rul; did you mean my_rule"):
        checked(["aggregator=my_rul"])


@pytest.mark.parametrize(
    ("content", "message"), [("# to come\n", "is empty; write into it which class"), ("a: [", "cannot be read")]
)
def test_a_configuration_without_content_chooses_nothing(project, monkeypatch, content, message):
    (project / "conf" / "aggregator" / "mine.yaml").write_text(content)
    with pytest.raises(SettingError, match=rf"conf/aggregator/mine\.yaml {message}"):
        config.check_choices(["aggregator=mine"])


def test_a_configuration_without_a_class_is_refused(project):
    (project / "conf" / "aggregator" / "mine.yaml").write_text("length: 1.0\n")
    with pytest.raises(SettingError, match=r"aggregator needs a class, got {'length': 1.0}; write _target_: "):
        checked(["aggregator=mine"])
    with pytest.raises(SettingError, match=r"aggregator needs a class, got {'length': 1.0}; write _target_: "):
        conf.make("aggregator", "mine")


def test_without_it_its_names_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(config.OWN, raising=False)
    (tmp_path / "conf" / "database").mkdir(parents=True)  # somebody else's
    assert config.own_folder() is None
    assert "my_rule" not in config.choices("aggregator")


def test_a_folder_can_be_named(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["aggregator=my_rule", "--config-dir", "project/conf", "seed=1"]
    monkeypatch.setenv(config.OWN, "")  # so that it is as before after the test
    assert config.take_own(arguments) == ["aggregator=my_rule", "seed=1"]
    assert config.own_folder() == project / "conf"
    for wrong in (["--config-dir"], ["--config-dir", "nowhere"], ["--config-dir=nowhere"]):
        with pytest.raises(SettingError, match="--config-dir needs a folder of configurations"):
            config.take_own(wrong)
    (tmp_path / "empty").mkdir()
    config.take_own(["--config-dir=empty"])
    with pytest.raises(SettingError, match=r"needs one of adversary, aggregator, .* in it, got .*empty"):
        config.own_folder()


def test_another_checkout_is_no_project(project):
    (project / "lightning_fl").mkdir()
    (project / "lightning_fl" / "conf").symlink_to(project / "conf")
    with pytest.raises(SettingError, match=r"is a checkout of lightning-fl, but .*; install the checkout there"):
        config.own_folder()


def test_a_class_of_another_kind_is_refused(project):
    (project / "conf" / "aggregator" / "wrong.yaml").write_text("_target_: my_attack.MyAttack\n")
    with pytest.raises(
        SettingError, match=r"needs a class made from lightning_fl\..*\.Aggregator, got my_attack.MyAttack"
    ):
        make(checked(["aggregator=wrong"]).aggregator)


def test_the_contract_names_the_file_that_cannot_be_made(project):
    (project / "conf" / "aggregator" / "wrong.yaml").write_text("_target_: lightning_fl.aggregator.krum.Krum\nf: -1\n")
    with pytest.raises(SettingError, match=r"conf/aggregator/wrong.yaml cannot be made: .*krum needs f >= 0"):
        conf.make("aggregator", "wrong")


@pytest.mark.parametrize("name", ["krum", "Krum"])  # one file on a disk of a Mac
def test_a_name_of_ours_is_refused(project, name):
    (project / "conf" / "aggregator" / f"{name}.yaml").write_text("_target_: my_rule.MyRule\nf: 1\n")
    with pytest.raises(SettingError, match=rf"{name}.yaml has the name of a configuration of lightning-fl"):
        checked([f"aggregator={name}"])


def test_its_path_may_have_an_apostrophe(project, tmp_path, monkeypatch):
    project.rename(tmp_path / "Anna's project")
    monkeypatch.chdir(tmp_path / "Anna's project")
    assert config.compose(["aggregator=my_rule"]).aggregator._target_ == "my_rule.MyRule"


@pytest.mark.slow
def test_every_command_knows_it(project, tmp_path, monkeypatch, capsys):
    assert "my_rule" in command("lightning_fl", "train", "--help")[1]
    (project / "sweep.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: accuracy, goal: maximize}\n"
        'command: ["${env}", "${interpreter}", "${program}", "${args_no_hyphens}"]\n'
        "parameters: {experiment: {value: my_setting}, trainer.max_steps: {value: 3}, trainer.accelerator: "
        "{value: cpu}, aggregator: {values: [my_rule, median]}}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(config.OWN, "")  # so that it is as before after the test
    monkeypatch.setattr(sweep, "stop_when_told", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sweep.py", str(project / "sweep.yaml"), "--config-dir=project/conf"])
    code, out, err = outcome(sweep.main, capsys)
    assert code == 0, err
    assert out.count("completed") == 2


@pytest.mark.slow
def test_its_parts_learn_under_attack(project):
    """All of them together, by the third line of its README."""
    given = ["experiment=my_setting", "aggregator=my_midrange", "client=my_client", "partition=my_partition"]
    code, out = command("lightning_fl", "train", *given, "logger=none", "hydra.run.dir=run")
    assert code == 0, out
    assert "MyMidrange(f=3)" in out
    assert "3 Byzantine (MyAttack(factor=5.0))" in out
    assert min(json.loads((project / "run" / "summary.json").read_text())["recall"]) > 0.9


BARE = """
import torch


class Bare(torch.nn.Sequential):
    {declared}

    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear({features}, 3))
"""


@pytest.mark.parametrize(
    ("features", "declared", "shape"),
    [(2, "", (2,)), (20, "input_shape = (4, 5)", (4, 5)), (20, "", None), (3072, "", (3, 32, 32))],
    ids=["its own data", "declared", "unknown", "pictures"],
)
def test_a_model_whose_settings_say_nothing_of_its_inputs_keeps_the_laws(project, features, declared, shape):
    """The contract finds what it takes, or says what to declare."""
    names: dict = {}
    exec(BARE.format(declared=declared or "pass", features=features), names)
    find = partial(found_inputs, names["Bare"](), {}, 6, torch.Generator())
    if shape is None:
        with pytest.raises(SettingError, match=r"inputs that Bare takes, found none; declare .* input_shape = \(3, 32"):
            find()
    else:
        inputs, n_classes = find()
        assert (tuple(inputs.shape), n_classes) == ((6, *shape), 3)


@pytest.mark.slow
def test_it_keeps_the_laws(project, monkeypatch):
    """By the line that the README names; nothing of ours is tested there.  A rule that takes any f breaks one.

    A model whose file says what becomes of its batch normalisation keeps them, too.
    """
    layers = "nn.Linear(in_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)"
    constructor = f"def __init__(self, in_features: int):\n        super().__init__({layers})"
    (project / "normed.py").write_text(f"from torch import nn\nclass Normed(nn.Sequential):\n    {constructor}\n")
    content = "# With batch normalisation.\n_target_: normed.Normed\nin_features: 6\nbuffers: batch\n"
    (project / "conf" / "model" / "normed.yaml").write_text(content)
    code, least = (project / "my_rule.py").read_text(), '    least = "f + 1"\n'
    assert least in code
    (project / "careless.py").write_text(code.replace(least, ""))
    content = (project / "conf/aggregator/my_rule.yaml").read_text()
    (project / "conf/aggregator/my_rule_careless.yaml").write_text(content.replace("my_rule.", "careless."))
    code, out = command("pytest", "--pyargs", "lightning_fl.contract", "-q", "-p", "no:cacheprovider")
    assert code == 1, out
    assert " passed" in out
    failed = re.findall(r"^FAILED .*?::(\S+)", out, re.MULTILINE)
    assert "test_f_out_of_range_raises_before_training[my_rule_careless]" in failed
    assert all("careless" in name for name in failed), failed
    monkeypatch.setenv(ONLY, "my_rule")  # as for a submission
    code, out = command("pytest", "--pyargs", "lightning_fl.contract.test_aggregator", "-q", "-p", "no:cacheprovider")
    assert code == 0, out
