"""Names of settings, and what differs from the default."""

import pytest

from lightning_fl.run.differences import changed, flat, named
from tests import saved


@pytest.mark.parametrize(
    ("target", "more", "name"),
    [
        ("lightning_fl.data.mnist_5k.Mnist5k", {}, "mnist_5k"),
        ("lightning_fl.aggregator.krum.MultiKrum", {"f": 3}, "multi_krum"),
        ("torch.optim.SGD", {}, "sgd"),
        ("lightning_fl.aggregator.bucketing.Bucketing", {"rule": {"_target_": "a.krum.Krum"}}, "bucketing(krum)"),
        ("torch.optim.lr_scheduler.LambdaLR", {"lr_lambda": {"_target_": "a.late_decay.late_decay"}}, "late_decay"),
    ],
)
def test_parts_are_named_as_in_conf(target, more, name):
    assert named({"_target_": target, **more}) == name


def test_nothing_has_a_name_too():
    assert [named(None, "aggregator"), named({}, "adversary"), named([])] == ["average", "no attack", "none"]


def test_what_differs_from_the_default():
    default = saved.changed(saved.CONFIG, aggregator=None, newer_setting=1)
    config = saved.changed(saved.CONFIG, trainer__max_steps=9, federation__seed=2, run_dir="elsewhere", reference="run")
    assert changed(config, default) == [
        ("aggregator", "boba: f=1, p_min=-0.5", "average"),
        ("federation.seed", "2", "0"),
        ("reference", "run", "null"),
        ("trainer.max_steps", "9", "4"),
    ]
    assert changed(default, default) == []
    assert changed({"server": {"lr": 0.1}}, {"server": {"lr": 0.1000001}}) == [("server.lr", "0.1", "0.1000001")]
    moved = saved.changed(saved.CONFIG, data__corruption_cache="elsewhere")
    assert changed(moved, saved.CONFIG) == []
    without = saved.changed(saved.CONFIG, adversary={})
    assert changed(without, saved.CONFIG) == [("adversary", "no attack", "ipm: factor=10")]


def test_settings_are_spelled_as_on_the_command_line():
    shown = dict(flat({"a": {"b": {"c": None}, "d": True}, "e": 1e-05, "f": {}, "g": [1]}))
    assert shown == {"a.b.c": "null", "a.d": "true", "e": "1e-05", "f": "{}", "g": "[1]"}
