"""Laws of every data set in conf/data: making it touches neither disk nor network, and it loads the same every time."""

import pytest
import torch
from hydra.utils import instantiate

from lightning_fl import DataError, FederatedDataModule, Federation, SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.iid import Iid

every_data_set = pytest.mark.parametrize("name", conf.names("data"))


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Make a data set whose folder is empty."""
    monkeypatch.chdir(tmp_path)

    def made(name):
        config = conf.compose(f"data={name}").data.copy()
        config.update({key: str(tmp_path) for key in ("root",) if key in config})
        federation = Federation(4, 0, "supplement", "uniform")
        return instantiate(config, partition=Iid(), federation=federation, _convert_="all")

    return made


@every_data_set
def test_making_it_does_nothing_yet(name, make, tmp_path):
    assert isinstance(make(name), FederatedDataModule)
    assert not list(tmp_path.iterdir())


@every_data_set
def test_samples_do_not_depend_on_torch_s_global_stream(name, make):
    """Where it loads without being fetched first."""
    loaded = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        try:
            loaded.append(make(name).load())
        except (DataError, SettingError, OSError) as error:
            pytest.skip(f"it does not load here: {error}")
    for first, second in zip(*loaded, strict=True):
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.targets, second.targets)
