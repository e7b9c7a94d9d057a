"""What a run may go on with."""

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.utils import JobRuntime
from omegaconf import OmegaConf

from lightning_fl import SettingError
from lightning_fl.run import identity
from lightning_fl.run.check import check, checked
from lightning_fl.run.config import compose


@pytest.fixture
def begun(tmp_path):
    """A run of an older version, which had no client.batch_size; gives its settings with that, as they go on."""
    config = compose(["run_dir=x", "run_name=x", "logger=[]"])
    OmegaConf.set_struct(config, False)
    del config.client.batch_size
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config, resolve=True))
    (tmp_path / "checkpoints").mkdir()
    checkpoint = tmp_path / "checkpoints" / "last.ckpt"
    checkpoint.touch()
    config.ckpt_path, config.client.batch_size = str(checkpoint), 5
    return config


def test_a_run_goes_on_though_a_setting_was_added_since(begun, monkeypatch):
    with pytest.raises(SettingError, match=r"got others than .*client.batch_size: 5, there null"):
        check(begun)
    monkeypatch.setattr(identity, "ADDED", {begun.client._target_: {"batch_size": 5}})
    check(begun)
    begun.client.batch_size = 7
    with pytest.raises(SettingError, match=r"client.batch_size: 7, there 5"):
        check(begun)


def test_a_run_goes_on_elsewhere_longer_and_with_a_reference(begun):
    del begun.client.batch_size
    begun.run_dir, begun.data_dir, begun.reference = "y", "y", "run"
    begun.trainer.max_steps, begun.trainer.accelerator, begun.checkpoint_every = 500, "cpu", 7
    check(begun)
    begun.trainer.val_check_interval = 5
    with pytest.raises(SettingError, match=r"others than .*config.yaml: trainer.val_check_interval: 5, there 10"):
        check(begun)
    begun.trainer.val_check_interval, begun.server.lr = 10, 0.5
    with pytest.raises(SettingError, match=r"others than .*config.yaml: server.lr: 0.5, there "):
        check(begun)


def test_what_can_be_checked_can_be_composed():
    arguments = ["+adversary=lie", "--seed=3", "logger=[]", "run_dir=x", "run_name=x"]
    assert identity.identity(compose(arguments)) == identity.identity(checked(arguments[:2]))


def test_it_composes_inside_another_application_of_hydra(tmp_path):
    (tmp_path / "app.yaml").write_text("mine: 1")
    with initialize_config_dir(str(tmp_path), version_base="1.3", job_name="theirs"):
        assert compose(["aggregator=krum", "f=2", "run_dir=x", "run_name=x"]).aggregator.f == 2
        assert hydra_compose("app") == {"mine": 1}
        assert JobRuntime.instance().get("name") == "theirs"


def test_what_is_watched_is_measured_on_validation_samples_where_there_are_any():
    watching = "callbacks=[early_stopping,model_checkpoint]"
    for more, expected in [
        ([], "accuracy"),
        (["data.validation_share=0.2"], "validation_accuracy"),
        (["data.validation_share=0.2", "callbacks.early_stopping.monitor=accuracy"], "accuracy"),
    ]:
        found = compose([watching, *more]).callbacks
        assert found.early_stopping.monitor == expected
    assert found.model_checkpoint.monitor == "validation_accuracy"
    mine = ["+callbacks.mine._target_=pytorch_lightning.callbacks.ModelCheckpoint", "+callbacks.mine.monitor=null"]
    assert compose(mine).callbacks.mine.monitor is None
