"""What the README and the pages of docs show works as it stands there."""

import re
from pathlib import Path

import pytest
import torch
import yaml

import lightning_fl as fl
from lightning_fl import Aggregator
from lightning_fl.aggregator.boba import Boba
from lightning_fl.contract import conf, world
from tests import training

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = "".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("use/*.md"))])


def test_the_rule_to_add_is_a_rule():
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class MyRule" in block)
    (settings,) = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
    names: dict = {}
    exec(code, names)
    assert settings.pop("_target_") == "my_rule.MyRule"
    rule = names["MyRule"](**settings | {"f": 8})
    assert isinstance(rule, Aggregator)
    updates = world.updates(12)
    shortest = updates.rows.norm(dim=1).argsort()[:4]
    torch.testing.assert_close(rule.aggregate(updates, world.oracle()).update, updates.rows[shortest].mean(0))


def block(word):
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", PAGES, re.DOTALL) if word in code)
    return code


def test_rules_take_plain_tensors_as_it_says():
    updates, class_updates = torch.randn(115, 30), torch.randn(10, 30)
    names = {"fl": fl, "updates": updates, "class_updates": class_updates, "server_update": updates.mean(0)}
    exec(block("Boba(f=4)(updates"), names)
    assert torch.equal(names["update"], Boba(4)(updates, class_updates))
    assert (names["chosen"] == updates).all(1).sum() == 1
    assert names["trusted"].shape == (30,)


def test_a_loop_of_ones_own_remembers_rounds():
    """Buckets of three rows at 2 move by 0.5 each: seven clients from 0 to 1.5, then four, from there to 2."""
    rounds = [(range(7), torch.full((7, 1), 2.0)), ([1, 2, 4, 6], torch.full((4, 1), 2.0))]
    names = {"fl": fl, "model": torch.zeros(1), "rate": 1.0, "rounds": rounds}
    exec(block("rule.end_round(t)"), names)
    assert names["model"].item() == pytest.approx(-1.5 - 2.0)


@pytest.mark.slow
def test_a_run_in_python(tmp_path, monkeypatch):
    """Both ways train the same model, and leave nothing in the folder."""
    monkeypatch.chdir(tmp_path)
    draw = torch.Generator().manual_seed(0)
    means, y, y_test = 4 * torch.eye(10, 12), torch.arange(1000) % 10, torch.arange(200) % 10
    x, x_test = (means[t] + torch.randn(len(t), 12, generator=draw) for t in (y, y_test))

    def net():
        layer = torch.nn.Linear(12, 10)
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        return layer

    names = {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "net": net}
    exec(block("fl.train("), names)
    run = names["run"]
    assert run.accuracy > 0.9
    assert min(run.recall) > 0.5
    assert [len(run.metrics), len(run.weights)] == [100, 100]
    assert max(row["weight/byzantine"] for row in run.metrics[50:]) < 2 / 22  # one of the four is accepted at most
    assert not list(tmp_path.iterdir())
    lightning = block("pl.Trainer(").replace("max_steps=100", "max_steps=100, enable_checkpointing=False")
    with training.quiet():
        exec(lightning, names)
    module = names["trainer"].lightning_module
    for ours, theirs in zip(run.model.parameters(), module.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.cpu())


def test_every_choice_it_names_exists():
    for group, chosen in re.findall(r"\b(aggregator|adversary|data|method|experiment)=([a-z0-9_,]+)", PAGES):
        assert set(chosen.split(",")) - {"my_rule", "none"} <= set(conf.names(group)), (group, chosen)
