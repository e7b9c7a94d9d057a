"""YAML in which no key stands twice."""

import pytest
import yaml

from lightning_fl.study import yaml_file


@pytest.mark.parametrize("loader", [yaml.BaseLoader, yaml.SafeLoader])
def test_what_yaml_reads_is_read(loader):
    for text in ("", "a: 1\nb: {a: 2}\nc: [{a: 1}, {a: 2}]\n", "- a\n- a\n", "x: &here {a: 1}\ny: *here\n"):
        assert yaml_file.load(text, loader) == yaml.load(text, loader)


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "x: {a: 1, a: 1}\n", "- [{a: 1,\n   a: 2}]\n"])
def test_a_key_that_stands_twice_is_refused_with_its_place(text):
    with pytest.raises(yaml.YAMLError, match=r"a occurs twice[\s\S]*line \d"):
        yaml_file.load(text, yaml.SafeLoader)
