"""A setting's kind is what the signature says that it goes to."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from omegaconf import OmegaConf

from lightning_fl import SettingError
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.nnm import Nnm
from lightning_fl.run.assemble import make
from lightning_fl.run.kinds import check_kind, check_kinds


class Base:
    def __init__(self, size: int | None = None, words: Literal["a", "b"] = "a"):
        pass


class Part(Base):
    def __init__(self, rate: float, shape: Sequence[int] = (), made: Base | None = None, untold=None, **settings: Any):
        pass


NODE = {"_target_": f"{__name__}.Part"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "fast"}, "p.rate needs a number, got 'fast'"),
        ({"rate": True}, "p.rate needs a number, got True"),
        ({"rate": "???"}, "p.rate has no default; give it a value"),
        ({"size": 1.5}, "p.size needs a whole number or null, got 1.5"),
        ({"size": 2**63}, "p.size needs a whole number of at most 63 bits"),
        ({"shape": 3}, r"p.shape needs a list \(a whole number each\), got 3"),
        ({"shape": [3, None]}, "p.shape needs a list"),
        ({"words": 3}, "p.words needs text, got 3"),
        ({"sise": 3}, "there is no setting p.sise; did you mean size. valid: made, rate, shape, size, untold, words"),
        ({"_partial_": True, "rate": 1.0}, "there is no setting p.rate; valid: made, shape, size, untold, words"),
        ({"_partial_": 3}, "p._partial_ needs true or false, got 3"),
        ({"made": {**NODE, "rate": "fast"}}, "p.made.rate needs a number, got 'fast'"),
        ({"_target_": "no_such_module.Part"}, r"p._target_ needs the name of a class, got no_such_module.Part"),
        (
            {"_target_": "lightning_fl.federation.Federation", "participation": "all"},
            r"p.participation needs a share in \(0, 1\] or a count above 1, got 'all'",
        ),
        ({"_target_": "torch.optim.SGD", "lr": float("nan")}, "p.lr needs a finite number, got nan"),
    ],
)
def test_other_kinds_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        check_kinds(NODE | settings, "p")


@pytest.mark.parametrize("line", ["def broken(:", "import no_such_package", "1 / 0"])
def test_a_module_with_an_error_is_not_said_to_be_absent(line, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    name = f"broken_by_{len(line)}"
    (tmp_path / f"{name}.py").write_text(line)
    with pytest.raises(SettingError, match=rf"p._target_ is {name}.Part, which cannot be imported \(\w+Error: "):
        check_kinds({"_target_": f"{name}.Part"}, "p")


@pytest.mark.parametrize(
    "settings",
    [{"rate": 1}, {"rate": float("inf")}, {"size": None}, {"shape": [1, 2]}, {"words": "c"}, {"untold": [{}]}],
)
def test_a_part_checks_its_values_itself(settings):
    check_kinds(NODE | settings, "p")


@pytest.mark.parametrize(("value", "hint"), [(3, Aggregator), (3, Callable[[int], float]), ({"a": 1}, int), ([], str)])
def test_what_a_file_cannot_hold_is_refused(value, hint):
    with pytest.raises(SettingError, match=r"p needs .*, got"):
        check_kind("p", value, hint)


CALLED = []


class Wrong:
    """A class that no place takes, and the functions: called in vain."""

    def __init__(self, **settings: Any):
        CALLED.append(settings)

    def __call__(self) -> None:
        pass


def untold(**settings):
    CALLED.append(settings)


def made_rule(f: int) -> Krum:
    return Krum(f)


WRONG, UNTOLD = {"_target_": f"{__name__}.Wrong"}, {"_target_": f"{__name__}.untold"}
MLP = {"_target_": "lightning_fl.model.mlp.Mlp", "in_features": 2, "hidden": [3], "n_classes": 2}
LAMBDA = {"_target_": "torch.optim.lr_scheduler.LambdaLR", "_partial_": True}
SGD = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.1}


@pytest.mark.parametrize(
    ("group", "node", "message"),
    [
        *(
            (group, {"_target_": target}, rf"{group} needs a class made from [\w.]+, got {target}; choose another")
            for group in ("model", "aggregator", "client", "server", "schedule", "data", "logger", "trainer")
            for target in ("torch.load", "torch.hub.load", "pathlib.Path.unlink", "webbrowser.open", "antigravity.x")
        ),
        ("model", {"_target_": "lightning_fl.files.write", "content": "x"}, "needs a class made from torch.nn.Module"),
        ("model", {"_target_": "pytorch_lightning.LightningModule.load_from_checkpoint"}, "the name of a class"),
        ("model", WRONG, "needs a class made from torch.nn.Module"),
        ("model", UNTOLD, "needs a class made from torch.nn.Module"),
        ("partition", WRONG, "partition needs a class made from lightning_fl.partition.base.Partition"),
        ("model", MLP | {"in_features": UNTOLD}, "model.in_features takes no part that is made"),
        ("model", MLP | {"hidden": [WRONG]}, r"model.hidden\[0\] takes no part that is made"),
        ("model", MLP | {"hidden": {"a": [WRONG]}}, r"model.hidden.a\[0\] takes no part that is made"),
        (
            "trainer",
            {"_target_": "pytorch_lightning.Trainer", "callbacks": [WRONG]},
            r"trainer.callbacks\[0\] needs a class",
        ),
        ("server", SGD | {"lr": UNTOLD}, "server.lr needs a class made from torch.Tensor"),
        ("schedule", LAMBDA | {"lr_lambda": UNTOLD}, "schedule.lr_lambda takes no part that is made"),
        ("schedule", LAMBDA | {"lr_lambda": {"_target_": "subprocess.Popen"}}, "schedule.lr_lambda takes no part"),
        ("aggregator", {"_target_": "lightning_fl.aggregator.nnm.Nnm", "f": 1, "rule": WRONG}, "rule needs a class"),
        ("aggregator", {"_target_": "lightning_fl.aggregator.average.Average", "_partial_": True}, "made as a whole"),
        ("model", {"_target_": "os:system"}, "it is written MODULE.CLASS"),
        ("model", {"_target_": "torch.fx.graph_module.reduce_graph_module"}, "or a function of your project"),
    ],
)
def test_nothing_is_called_that_its_place_does_not_take(group, node, message, monkeypatch):
    monkeypatch.setattr("lightning_fl.run.assemble.instantiate", None)
    with pytest.raises(SettingError, match=message) as error:
        make(OmegaConf.create({group: node})[group])
    assert not CALLED
    assert "\n" not in str(error.value)


def test_classes_and_functions_that_say_what_they_give_are_taken():
    rule = {"_target_": "lightning_fl.aggregator.average.Average"}
    nested = {"_target_": "lightning_fl.aggregator.nnm.Nnm", "f": 1, "rule": rule}
    own = {"_target_": f"{__name__}.made_rule", "f": 2}
    found = [make(OmegaConf.create({"aggregator": node}).aggregator) for node in (rule, nested, own)]
    assert [type(one) for one in found] == [Average, Nnm, Krum]
