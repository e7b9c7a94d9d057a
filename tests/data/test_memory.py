"""Every data set of ours says how much memory it takes."""

import importlib

import pytest

from lightning_fl.contract import conf


@pytest.mark.parametrize("name", conf.names("data"))
def test_its_memory_is_stated(name):
    module = importlib.import_module(conf.compose(f"data={name}").data["_target_"].rpartition(".")[0])
    assert "Memory: " in module.__doc__
