"""The data of a federation: who holds what, and one batch a round."""

from types import SimpleNamespace

import pytest
import torch

from lightning_fl import FederatedDataModule, Federation, Samples, SettingError
from lightning_fl.partition.iid import Iid
from lightning_fl.partition.pathological import Pathological
from tests import world


class Toy(FederatedDataModule):
    """18 training samples of three classes and 6 test samples."""

    loads = 0

    def load(self):
        self.loads += 1
        return world.samples(6), world.samples(2, seed=1)


class Lopsided(Toy):
    """One sample of class 2."""

    def load(self):
        targets = torch.tensor([0] * 5 + [1] * 5 + [2])
        return Samples(torch.zeros(11, 2), targets, 3), world.samples(2)


def make(kind=Toy, federation=None, partition=None, **changes):
    settings = {"server_samples": 2, "seed": 0, "partition_seed": 0, "eval_batch_size": 4} | changes
    return kind(
        partition=partition or Iid(), federation=federation or Federation(4, 0, "supplement", "uniform"), **settings
    )


def ready(*args, **changes):
    data = make(*args, **changes)
    data.setup()
    return data


def held(batch):
    return [index.tolist() for index in batch.indices]


def test_a_round_has_everything_the_training_step_needs():
    data = ready(federation=Federation(4, 3, "supplement", "samples"), seed=5)
    batch = data.round(17)
    assert (batch.index, batch.seed) == (17, 5)
    assert list(batch.honest.ids) == [0, 1, 2, 3]
    assert sorted(torch.cat(list(batch.honest.indices)).tolist()) == list(range(18))
    assert list(batch.byzantine.ids) == [4, 5, 6]
    assert held(batch.byzantine) == held(batch.honest)[:3]  # copies of the first clients' samples
    # 18 samples over four: 5, 5, 4, 4, and 4.5 for each client without data.
    assert (batch.data_weights * 31.5).tolist() == pytest.approx([5, 5, 4, 4, 4.5, 4.5, 4.5])
    assert data.n_classes == 3


def test_replaced_clients_lose_their_data():
    data = ready(federation=Federation(4, 2, "replacement", "uniform"))
    everyone, batch = ready().round(0), data.round(0)
    assert held(batch.honest) == held(everyone.honest)[:2]
    assert held(batch.byzantine) == held(everyone.honest)[2:]
    assert list(batch.byzantine.ids) == [2, 3]


def test_more_attackers_than_clients_go_round():
    batch = ready(federation=Federation(2, 5, "supplement", "uniform")).round(0)
    assert held(batch.byzantine) == [held(batch.honest)[i] for i in (0, 1, 0, 1, 0)]


def test_the_server_has_a_virtual_client_a_class():
    data = ready(server_samples=3)
    server = data.round(0).server
    assert server.class_counts().tolist() == [[3, 0, 0], [0, 3, 0], [0, 0, 3]]
    assert list(server.ids) == [-1, -2, -3]  # no draw is a client's
    assert server.samples is data.train  # its samples are clients' samples too
    assert held(data.round(1).server) == held(server)
    assert len(ready(server_samples=0).round(0).server) == 0


def test_seeds():
    assert held(ready().round(0).honest) == held(ready().round(9).honest)
    assert held(ready().round(0).honest) == held(ready(seed=1).round(0).honest)
    assert held(ready().round(0).honest) != held(ready(partition_seed=1).round(0).honest)
    assert held(ready().round(0).server) != held(ready(partition_seed=1).round(0).server)
    # What the server draws does not move the partition.
    assert held(ready(server_samples=5).round(0).honest) == held(ready(server_samples=0).round(0).honest)


def test_setup_happens_once():
    data = ready()
    train = data.train
    data.setup("test")
    assert data.train is train
    assert data.loads == 1


@pytest.mark.parametrize("loader", ["val_dataloader", "test_dataloader"])
def test_evaluation_sees_each_test_sample_once(loader):
    batches = list(getattr(ready(), loader)())
    assert [len(targets) for _, targets in batches] == [4, 2]
    inputs, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    assert torch.equal(inputs, world.samples(2, seed=1).inputs)
    assert targets.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("done", "rounds"), [(0, [0, 1, 2, 3, 4]), (3, [3, 4]), (5, [])])
def test_rounds_go_on_where_the_trainer_stands(done, rounds, unchecked):
    data = ready()
    data.trainer = SimpleNamespace(global_step=done, max_steps=5)
    loader = data.train_dataloader()
    assert len(loader) == 5
    assert [batch.index for batch in loader] == rounds


@pytest.mark.parametrize("trainer", [None, SimpleNamespace(global_step=0, max_steps=-1)])
def test_rounds_need_their_number(trainer):
    data = ready()
    data.trainer = trainer
    with pytest.raises(SettingError, match=r"a run needs its number of rounds; set trainer.max_steps"):
        len(data.train_dataloader())


def test_a_class_missing_from_the_servers_data():
    with pytest.raises(
        SettingError, match=r"server needs 2 samples of every class, got 1 of class 2; lower data.server"
    ):
        ready(Lopsided)
    assert len(ready(Lopsided, server_samples=1).round(0).server) == 3


def test_more_clients_than_the_partition_can_serve():
    with pytest.raises(SettingError, match=r"lower federation\.n_clients"):
        ready(federation=Federation(19, 0, "supplement", "uniform"))
    with pytest.raises(SettingError, match=r"multiple of c\^2 = 9 clients"):
        ready(partition=Pathological("pairs", 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server_samples": -1}, "data.server_samples must be at least 0, got -1"),
        ({"eval_batch_size": 0}, "data.eval_batch_size must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range(changes, message):
    with pytest.raises(SettingError, match=message):
        make(**changes)
