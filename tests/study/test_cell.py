"""What a cell asks for, told without composing it."""

import pytest

from lightning_fl.study.cell import Cell, keys


def key(*overrides, seed=0):
    return keys()(Cell(("a",), overrides, seed, "a cell"))


def test_a_key_is_that_of_the_settings_whatever_their_labels():
    one, other = (Cell(labels, ("aggregator=krum",), 0, labels[0]) for labels in (("a", 1), ("b", 2)))
    assert keys()(one) == keys()(other)
    assert len({key("f=3"), key("f=4"), key("f=3", seed=1), key("f=3", "f=4"), key("f=3.0")}) == 5


def test_what_changes_no_result_changes_no_key():
    assert key("f=3", "data_dir=elsewhere", "trainer.accelerator=cpu", "+logger.wandb.project=x") == key("f=3")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A project with two rules, one of which an experiment chooses by a method."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for path, text in {
        "conf/aggregator/cell_rule.yaml": "_target_: cell_rule.Mine\n",
        "conf/aggregator/cell_other.yaml": "_target_: cell_other.Mine\n",
        "conf/method/cell_method.yaml": "defaults:\n  - /aggregator: cell_rule\n",
        "conf/experiment/cell_setting.yaml": "defaults:\n  - override /method: [cell_method]\n",
        "cell_rule.py": "class Mine: ...\n",
        "cell_other.py": "class Mine: ...\n",
        "clients.json": "[]",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize("edited", ["cell_rule.py", "conf/aggregator/cell_rule.yaml"])
@pytest.mark.parametrize(
    ("override", "asks"),
    [
        ("aggregator=cell_rule", True),
        ("experiment=cell_setting", True),
        ("+aggregator@aggregator.rule=cell_rule", True),
        ("aggregator=cell_other", False),
        ("aggregator=krum", False),
    ],
)
def test_an_edit_of_your_own_rule_changes_the_keys_of_what_chooses_it(own, edited, override, asks):
    before = key(override)
    with (own / edited).open("a") as file:
        file.write("# edited\n" if edited.endswith(".py") else "f: 3\n")
    assert (key(override) != before) == asks


def test_so_do_a_class_and_a_file_that_an_override_names(own):
    overrides = ["aggregator._target_=cell_rule.Mine", "partition.path=clients.json"]
    before = [key(override) for override in overrides]
    (own / "cell_rule.py").write_text("class Mine: pass\n")
    (own / "clients.json").write_text("[[0]]")
    assert all(key(override) != old for override, old in zip(overrides, before, strict=True))
