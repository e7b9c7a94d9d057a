"""Laws of every data set in conf/data: it composes, and making it touches neither disk nor network."""

import pytest
from hydra.utils import instantiate

from lightning_fl import FederatedDataModule, Federation
from lightning_fl.contract import conf
from lightning_fl.partition.iid import Iid

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
