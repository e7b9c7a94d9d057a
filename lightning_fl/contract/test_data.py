"""Laws of every data set in conf/data: making it touches neither disk nor network, and it loads the same every time."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from lightning_fl import DataError, FederatedDataModule, Federation, SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.iid import Iid

every_data_set = pytest.mark.parametrize("name", conf.names("data"))


def settings(name, folder):
    """Compose a data set whose root, and what else it has to be told, is an empty folder."""
    config = conf.compose(f"data={name}").data.copy()
    told = [key for key in config if key == "root" or OmegaConf.is_missing(config, key)]
    config.update(dict.fromkeys(told, str(folder)))
    return config


def make(config):
    """Make it, for four clients."""
    return instantiate(config, partition=Iid(), federation=Federation(4, 0, "supplement", "uniform"), _convert_="all")


@every_data_set
def test_making_it_does_nothing_yet(name, tmp_path, monkeypatch):
    config = settings(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert isinstance(make(config), FederatedDataModule)
    assert not list(tmp_path.iterdir())


@every_data_set
def test_samples_do_not_depend_on_torch_s_global_stream(name, tmp_path):
    """Where it loads without being fetched first."""
    loaded = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        try:
            loaded.append(make(settings(name, tmp_path)).load())
        except (DataError, SettingError, OSError) as error:
            pytest.skip(f"it does not load here: {error}")
    for first, second in zip(*loaded, strict=True):
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.targets, second.targets)
