"""Names that packages offer are found by looking, and imported when first used."""

import builtins
import importlib
import json
import subprocess
import sys
from collections import Counter
from inspect import isclass, isfunction, ismodule
from pathlib import Path

import pytest

import lightning_fl as fl
from lightning_fl import SettingError, commands
from lightning_fl.run.config import GROUPS

LAZY = sorted(
    {*GROUPS, "callback", "metric", "theory"} - {"experiment", "method", "callbacks"}
)  # the last are Lightning's


@pytest.mark.parametrize("group", LAZY)
def test_every_name_is_a_module_of_the_group_or_stands_in_one(group):
    package = getattr(fl, group)
    assert package.__doc__
    assert {*package.__all__} <= {*dir(package)}
    assert max(Counter(dir(package)).values()) == 1
    assert not {*package.__all__} & {*dir(builtins)}  # partition.sorted
    for name in dir(package):
        thing = getattr(package, name)
        module = thing.__name__ if ismodule(thing) else thing.__module__
        assert isclass(thing) or ismodule(thing) or isfunction(thing)
        assert module.startswith(f"lightning_fl.{group}.")


def test_classes_stand_beside_the_groups():
    assert fl.aggregator.Boba is importlib.import_module("lightning_fl.aggregator.boba").Boba
    assert fl.adversary.Ipm is importlib.import_module("lightning_fl.adversary.ipm").Ipm
    assert fl.partition.Dirichlet is importlib.import_module("lightning_fl.partition.dirichlet").Dirichlet
    assert fl.aggregator.krum.Krum is importlib.import_module("lightning_fl.aggregator.krum").Krum
    assert fl.SettingError is SettingError
    with pytest.raises(AttributeError, match=r"has no Kumquat\.$"):
        _ = fl.aggregator.Kumquat
    with pytest.raises(AttributeError, match="did you mean Krum"):
        _ = fl.aggregator.Krumm
    with pytest.raises(AttributeError, match=r"client=fedavg is LocalSgd with the settings of conf/client/fedavg.yaml"):
        _ = fl.client.FedAvg


def test_a_new_file_is_found(tmp_path, monkeypatch):
    package = tmp_path / "my_rules"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from lightning_fl import _lazy\n__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)\n"
    )
    (package / "my_rule.py").write_text("class MyRule:\n    class Inner: pass\nclass _Part: pass\nclass Other: pass\n")
    (package / "_hidden.py").write_text("class Hidden: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = importlib.import_module("my_rules")
    assert found.__all__ == ["MyRule", "Other"]
    assert dir(found) == ["MyRule", "Other", "my_rule"]
    assert found.MyRule.__module__ == "my_rules.my_rule"


def test_asking_for_names_does_not_import_torch():
    code = f"""
import json, sys
import lightning_fl as fl
names = [dir(getattr(fl, group)) for group in {LAZY}]
print(json.dumps([len(names), sorted({{"torch", "hydra", "pytorch_lightning", "numpy"}} & set(sys.modules))]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [len(LAZY), []]


def test_help_does_not_wait_for_torch():
    names = sorted(path.stem for path in Path(commands.__file__).parent.glob("[a-z]*.py"))
    code = "import importlib, sys\n"
    code += f"for name in {names}: importlib.import_module(f'lightning_fl.commands.{{name}}')\n"
    code += "print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
