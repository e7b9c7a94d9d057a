"""What the README shows works as it stands there."""

import re
from pathlib import Path

import torch
import yaml

from lightning_fl import Aggregator
from lightning_fl.aggregator.boba import boba
from lightning_fl.contract import conf, world

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_rule_to_add_is_a_rule():
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class MyRule" in block)
    (settings,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
    names: dict = {}
    exec(code, names)
    assert settings.pop("_target_") == "lightning_fl.aggregator.my_rule.MyRule"
    rule = names["MyRule"](**settings | {"f": 8})
    assert isinstance(rule, Aggregator)
    updates = world.updates(12)
    shortest = updates.rows.norm(dim=1).argsort()[:4]
    torch.testing.assert_close(rule.aggregate(updates, world.oracle()).update, updates.rows[shortest].mean(0))


def test_the_plain_function_takes_what_it_says():
    updates, class_updates = torch.randn(115, 30), torch.randn(10, 30)
    names = {"updates": updates, "class_updates": class_updates}
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "f=16" in block)
    exec(code, names)
    assert torch.equal(names["update"], boba(updates, class_updates, 16))


def test_every_choice_it_names_exists():
    for group, chosen in re.findall(r"\b(aggregator|adversary|data|method|experiment)=([a-z0-9_,]+)", README):
        assert set(chosen.split(",")) - {"my_rule", "none"} <= set(conf.names(group)), (group, chosen)
