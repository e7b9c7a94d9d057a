"""Laws of every data set in conf/data: it composes, and making it touches neither disk nor network."""

import importlib

import pytest
from hydra.utils import instantiate

from lightning_fl import FederatedDataModule, Federation
from lightning_fl.partition.iid import Iid
from tests import conf

every_data_set = pytest.mark.parametrize("name", conf.names("data"))


@every_data_set
def test_making_it_does_nothing_yet(name, tmp_path, monkeypatch):
    config = conf.compose(f"data={name}").data.copy()
    config.update({key: str(tmp_path) for key in ("root",) if key in config})
    monkeypatch.chdir(tmp_path)
    federation = Federation(4, 0, "supplement", "uniform")
    data = instantiate(config, partition=Iid(), federation=federation, _convert_="all")
    assert isinstance(data, FederatedDataModule)
    assert not list(tmp_path.iterdir())


@every_data_set
def test_its_memory_is_stated(name):
    module = importlib.import_module(conf.compose(f"data={name}").data["_target_"].rpartition(".")[0])
    assert "Memory: " in module.__doc__
