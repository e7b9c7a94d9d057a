"""Runs that start from weights: of another run, or of a file."""

import pytest
import torch

from lightning_fl import DataError, SettingError, load_model
from lightning_fl.run import identity
from lightning_fl.run.assemble import make_model
from lightning_fl.run.config import compose
from lightning_fl.run.train import train
from tests import training

SMALL = [
    "data=synthetic",
    "data.n_train=200",
    "data.n_test=50",
    "data.server_samples=2",
    "model=logistic",
    "logger=[]",
    "federation.n_clients=4",
]
SMALL += ["adversary=none", "partition=iid", "trainer.max_steps=2", "trainer.enable_progress_bar=false"]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A run's folder."""
    folder = tmp_path_factory.mktemp("before")
    with training.quiet():
        train(compose([*SMALL, f"run_dir={folder}"]), folder, describe=False)
    return folder


def started(start, *more):
    return compose([*SMALL, *more, "run_dir=unused", f"model.start='{start}'"])


def test_starts_from_a_run_its_checkpoint_or_a_state_dict(before, tmp_path):
    expected = load_model(before).state_dict()
    torch.save(expected, tmp_path / "weights")
    for start in (before, before / "checkpoints/last.ckpt", tmp_path / "weights"):
        found = make_model(started(start)).state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_what_the_file_holds_is_a_part_of_the_run_s_name(before, tmp_path):
    for name, value in [("one", 0.0), ("other", 1.0)]:
        torch.save({"w": torch.tensor(value)}, tmp_path / name)
    copied = tmp_path / "copied.pt"
    copied.write_bytes((tmp_path / "one").read_bytes())
    names = [identity.identity(started(path)) for path in (tmp_path / "one", tmp_path / "other", copied)]
    assert names[0] == names[2] != names[1]
    assert identity.identity(started(before)) == identity.identity(started(before / "checkpoints/last.ckpt"))
    assert identity.identity(compose(SMALL)) == identity.identity(compose([*SMALL, "model.start=null"]))
    assert identity.identity(compose(SMALL)) not in {*names, identity.identity(started(before))}


def test_a_run_that_started_so_can_be_loaded_when_the_file_is_gone(before, tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(load_model(before).state_dict(), path)
    with training.quiet():
        train(started(path), tmp_path / "run", describe=False)
    path.unlink()
    assert load_model(tmp_path / "run").state_dict().keys() == load_model(before).state_dict().keys()


@pytest.mark.parametrize("buffers", ["batch", "rule"])
def test_a_run_with_batch_normalisation_can_be_gone_on_from(tmp_path, buffers):
    more = ["model=resnet20", "model.widths=[2,4]", "model.blocks=1", "model.groups=1", "model.in_channels=1"]
    more += ["model.norm=batch", f"model.buffers={buffers}", "data=mnist_5k", "~data.n_train", "~data.n_test"]
    settings = [part for part in SMALL if not part.startswith(("data=", "data.n_", "model="))]
    settings += [part for part in more if not part.startswith("~")] + ["client.batch_size=8", "trainer.max_steps=1"]
    with training.quiet():
        train(compose([*settings, f"run_dir={tmp_path}"]), tmp_path, describe=False)
    model = make_model(compose([*settings, "run_dir=unused", f"model.start='{tmp_path}'"]))
    ours = dict(load_model(tmp_path).named_parameters())
    assert all(torch.equal(ours[name], value) for name, value in model.named_parameters())


def test_other_files_are_refused(before, tmp_path):
    def refused(start, error, message, *more):
        with pytest.raises(error, match=message):
            make_model(started(start, *more))

    refused(
        tmp_path / "no", SettingError, "model.start needs a run's folder with a checkpoint, or a file of torch.save"
    )
    refused(tmp_path, SettingError, "which is neither")
    refused(
        before,
        SettingError,
        "net.0.weight has shape none there and|choose the model that it was saved from",
        "model=mlp",
    )
    (tmp_path / "text.pt").write_text("weights")
    refused(tmp_path / "text.pt", DataError, "cannot be read: .*; model.start needs .*; give another file.$")
    torch.save([1, 2], tmp_path / "list.pt")
    refused(tmp_path / "list.pt", DataError, "model.start needs .* got something else in")
