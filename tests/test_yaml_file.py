"""YAML of a bounded size in which no key stands twice."""

import time

import pytest
import yaml

from lightning_fl import DataError, SettingError, yaml_file
from lightning_fl.run import config
from lightning_fl.run.config import check_choices
from lightning_fl.run.saved import saved_config
from lightning_fl.study import sweep_file
from lightning_fl.study.compare import find
from lightning_fl.study.table import Table


@pytest.mark.parametrize("loader", [yaml.BaseLoader, yaml.SafeLoader])
def test_what_yaml_reads_is_read(loader):
    for text in ("", "a: 1\nb: {a: 2}\nc: [{a: 1}, {a: 2}]\n", "- a\n- a\n", "x: &here {a: 1}\ny: *here\n"):
        assert yaml_file.load(text, loader) == yaml.load(text, loader)


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x: {a: 1, a: 1}\n", "- [{a: 1,\n   a: 2}]\n"])
def test_a_key_that_stands_twice_is_refused_with_its_place(text):
    with pytest.raises(yaml.YAMLError, match=r"a occurs twice[\s\S]*line \d"):
        yaml_file.load(text, yaml.SafeLoader)


def aliases(value):
    """Nine of each before it, 20 times: 9^20 values."""
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} {value(', '.join([f'*a{i - 1}'] * 9))}" for i in range(1, 20))]
    return "\n".join(lines)


BOMBS = {
    "lists": (aliases("[{}]".format), "more than 20,000 values"),
    "merged": (aliases("{{<<: [{}]}}".format).replace("[x]", "{x: 1}"), "more than 20,000 values"),
    "chain": ("a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 99)), "more than 30 levels"),
    "itself": ("a: &a\n  b: [*a]\n", "refers to itself"),
    "deep": ("a: " + "[" * 5000 + "]" * 5000, "more than 30 levels"),
    "wide": ("".join(f"k{i}: 1\n" for i in range(100_000)), "988,890 characters, more than 100,000"),
}


def train(path):
    check_choices(["aggregator=mine"])


READERS = [saved_config, lambda path: find([path.parent]), sweep_file.read, lambda path: Table.load(str(path)), train]


@pytest.mark.parametrize("reader", READERS, ids=["run", "compare", "sweep", "reproduce", "train"])
def test_what_would_never_end_is_refused_in_one_line(tmp_path, monkeypatch, reader):
    (tmp_path / "conf" / "aggregator").mkdir(parents=True)
    (tmp_path / "conf" / "aggregator" / "mine.yaml").write_text("_target_: mine.Mine\n")
    path = tmp_path / ("conf/model/other.yaml" if reader is train else "config.yaml")
    path.parent.mkdir(exist_ok=True)
    monkeypatch.setenv(config.OWN, str(tmp_path / "conf"))
    for text, why in BOMBS.values():
        path.write_text(text)
        config._check_sizes.cache_clear()
        began = time.process_time()
        with pytest.raises((SettingError, DataError)) as error:
            reader(path)
        assert time.process_time() - began < 5  # seconds
        assert str(error.value).startswith(f"{path} cannot be read")
        assert why in str(error.value)
        assert "\n" not in str(error.value)
