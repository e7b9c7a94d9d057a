"""The data of a federation: who holds what, and one batch per round."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import lightning_fl as fl
from lightning_fl import DataError, FederatedDataModule, Federation, Samples, SettingError
from lightning_fl.contract import world
from lightning_fl.data.base import check_alike
from lightning_fl.data.corruption import corrupt_clients
from lightning_fl.data.mnist import Mnist
from lightning_fl.partition.base import Partition
from lightning_fl.partition.iid import Iid
from lightning_fl.partition.sorted import Sorted
from lightning_fl.partition.step import Step


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


@pytest.mark.parametrize("choice", [None, "copies"])
def test_supplementary_attackers_train_on_copies(choice):
    data = ready(federation=Federation(4, 3, "supplement", "uniform", byzantine_data=choice))
    assert held(data.round(0).byzantine) == held(data.clients)[:3]


def test_supplementary_attackers_train_on_an_iid_share_of_all():
    """Each of 40 draws 600 / 6 samples, all classes alike, and honest clients keep theirs."""

    class Many(Toy):
        def load(self):
            return world.samples(200), world.samples(2)

    def drawn(byzantine=40, **changes):
        federation = Federation(6, byzantine, "supplement", "uniform", byzantine_data="iid")
        return ready(Many, federation=federation, partition=Sorted(), **changes)

    data = drawn()
    batch = data.round(3).byzantine
    assert list(batch.ids) == list(range(6, 46))
    assert all(len(part.unique()) == len(part) == 100 for part in batch.indices)
    counts = batch.class_counts()
    assert (counts.sum(0) - 4000 / 3).abs().max() < 4 * 27  # 4,000 draws: standard deviation of a count below 30
    assert (counts > 15).all()
    assert len(set(map(tuple, held(batch)))) == 40
    assert sorted(x for part in held(data.round(3).honest) for x in part) == list(range(600))
    assert held(drawn(byzantine=2).round(0).byzantine) == held(batch)[:2]
    assert held(drawn(seed=5).round(0).byzantine) == held(batch)
    assert held(drawn(partition_seed=5).round(0).byzantine) != held(batch)
    assert held(data.everybody) == held(data.round(0).honest) + held(batch)


def test_an_iid_share_has_none_of_the_samples_that_the_server_holds_out():
    federation = Federation(4, 9, "supplement", "uniform", byzantine_data="iid")
    data = ready(federation=federation, server_held_out=True)
    held_out = data.server.samples.inputs
    for part in data.round(0).byzantine.indices:
        assert len(part) == 3  # of the 12 that are left
        assert not (data.train.inputs[part][:, None] == held_out).all(2).any()


def test_the_server_has_a_virtual_client_a_class():
    data = ready(server_samples=3)
    server = data.round(0).server
    assert server.class_counts().tolist() == [[3, 0, 0], [0, 3, 0], [0, 0, 3]]
    assert list(server.ids) == [-1, -2, -3]  # no draw is a client's
    assert held(data.round(1).server) == held(server)
    assert len(ready(server_samples=0).round(0).server) == 0


def test_the_server_may_hold_more_of_some_classes():
    for counts in ([3, 1, 2], torch.tensor([3, 1, 2]), np.array([3, 1, 2])):
        held = ready(server_samples=counts).round(0).server.class_counts().tolist()
        assert held == [[3, 0, 0], [0, 1, 0], [0, 0, 2]]
    with pytest.raises(SettingError, match="one number, or one for each of 3 classes, got 2 numbers"):
        ready(server_samples=[3, 1])


def test_the_servers_samples_are_training_samples_and_may_be_held_out():
    kept, apart = ready(), ready(server_held_out=True)
    rows = [row.tolist() for row in world.samples(6).inputs]
    server = [rows.index(row.tolist()) for row in apart.server.samples.inputs]
    assert torch.equal(kept.server.samples.inputs, apart.server.samples.inputs)
    assert len(set(server)) == 6
    clients = [set(index.tolist()) for index in apart.clients.indices]
    assert clients == [set(index.tolist()) - set(server) for index in kept.clients.indices]
    with pytest.raises(SettingError, match="got none for client 0 once the server's are held out"):
        ready(federation=Federation(18, 0, "supplement", "uniform"), server_held_out=True)


class Images(Toy):
    """Thirty grey images, ten of each of three classes, standardised by two known numbers."""

    def load(self):
        images = torch.randint(0, 256, (30, 1, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
        samples = Samples(images, torch.arange(30) % 3, 3, (0.25,), (0.5,))
        return samples, samples


def test_noise_on_the_servers_images_alone():
    clean, noisy = ready(Images, server_samples=5), ready(Images, server_samples=5, server_noise="gaussian")
    index = torch.arange(15)
    before, after = (data.server.samples.gather(index)[0] for data in (clean, noisy))
    assert before.shape == after.shape
    pixels = after * 0.5 + 0.25  # back to [0, 1]
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    assert 0.05 < (after - before).std() * 0.5 < 0.09  # deviation 0.08, clipped at both ends
    assert torch.equal(clean.train.inputs, noisy.train.inputs)
    for seed in (0, 1):  # of the run, not of the partition
        again = ready(Images, server_samples=5, server_noise="gaussian", seed=seed).server.samples
        assert torch.equal(again.inputs, noisy.server.samples.inputs)


def test_another_partition_seed_draws_other_noise():
    noise = []
    for seed in (0, 1):
        settings = {"server_samples": 5, "partition_seed": seed}
        clean, noisy = ready(Images, **settings), ready(Images, server_noise="gaussian", **settings)
        before, after = (data.server.samples.gather(torch.arange(15))[0] for data in (clean, noisy))
        noise.append((after - before).flatten())
    assert abs(torch.corrcoef(torch.stack(noise))[0, 1]) < 5 / len(noise[0]) ** 0.5


class Colours(Toy):
    """24 training and 6 test images in colour."""

    def load(self):
        images = torch.randint(0, 256, (30, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()
        samples = Samples(images, torch.arange(30) % 3, 3, (0.5,) * 3, (0.25,) * 3)
        parts = torch.arange(30).split([24, 6])
        return tuple(replace(samples, inputs=images[part], targets=samples.targets[part]) for part in parts)


def test_the_images_of_each_client_are_corrupted_and_no_others(tmp_path):
    """Those that it keeps for validation, too; the server's and the test images stay clean."""
    settings = {"server_samples": 2, "validation_share": 0.25}
    clean, holding = ready(Colours, **settings), ready(Colours)
    corrupted, kinds = corrupt_clients(clean.train.inputs, list(holding.clients.indices), 3, 0, tmp_path / "own")
    for seed in (0, 1):  # of the run, which moves nothing
        data = ready(Colours, corruption=3, corruption_cache=str(tmp_path), seed=seed, **settings)
        assert data.corruptions == kinds
        assert held(data.clients) == held(clean.clients)
        assert torch.equal(data.train.inputs, corrupted)
        kept = sorted(set(range(24)) - {i for part in held(data.clients) for i in part})
        assert len(kept) == 8
        assert torch.equal(data.validation.inputs, corrupted[kept])
        assert torch.equal(data.validation.targets, clean.train.targets[kept])
        assert torch.equal(data.server.samples.inputs, clean.server.samples.inputs)
        assert torch.equal(data.test.inputs, clean.test.inputs)


def test_validation_leaves_the_others_corruption_as_it_is(tmp_path):
    settings = {"server_samples": 1, "server_held_out": True, "corruption": 3, "corruption_cache": str(tmp_path)}
    one, other = ready(Colours, **settings), ready(Colours, validation_share=0.25, **settings)
    assert torch.equal(one.train.inputs, other.train.inputs)


def test_another_partition_seed_corrupts_otherwise(tmp_path):
    clean = ready(Colours, server_samples=0, partition_seed=1)
    corrupted, kinds = corrupt_clients(clean.train.inputs, list(clean.clients.indices), 3, 1, tmp_path / "own")
    data = ready(Colours, server_samples=0, partition_seed=1, corruption=3, corruption_cache=str(tmp_path))
    assert data.corruptions == kinds
    assert torch.equal(data.train.inputs, corrupted)


@pytest.mark.parametrize("settings", [{"server_noise": "shot"}, {"corruption": 3}])
def test_only_images_can_be_corrupted(settings):
    with pytest.raises(
        SettingError, match=rf"data.{next(iter(settings))} needs (colour )?images, got samples of shape"
    ):
        ready(**settings)


def test_who_is_away_is_away():
    data = ready(federation=Federation(4, 2, "supplement", "samples", participation=0.5, seed=3))
    seen = set()
    for t in range(20):
        batch = data.round(t)
        assert (len(batch.honest), len(batch.byzantine)) == (2, 1)
        for ids, indices in [(batch.honest.ids, held(batch.honest)), (batch.byzantine.ids, held(batch.byzantine))]:
            assert indices == [data.clients.indices[i % 4].tolist() for i in ids]
        assert batch.data_weights.sum().item() == pytest.approx(1)
        seen |= {*batch.honest.ids, *batch.byzantine.ids}
    assert seen == set(range(6))
    assert list(data.everybody.ids) == list(range(6))


def test_seeds():
    assert held(ready().round(0).honest) == held(ready().round(9).honest)
    assert held(ready().round(0).honest) == held(ready(seed=1).round(0).honest)
    assert held(ready().round(0).honest) != held(ready(partition_seed=1).round(0).honest)
    servers = [ready(partition_seed=seed).round(0).server.samples.inputs for seed in (0, 0, 1)]
    assert torch.equal(servers[0], servers[1])
    assert not torch.equal(servers[0], servers[2])
    # What the server draws does not move the partition.
    assert held(ready(server_samples=5).round(0).honest) == held(ready(server_samples=0).round(0).honest)


def test_a_later_setup_moves_everything_to_the_trainers_device(monkeypatch):
    """As when someone looks at the clients first and trains on a GPU then; here the other device is torch's meta."""
    module = ready()
    before = module.round(0).honest.ids
    monkeypatch.setattr(Samples, "__post_init__", lambda self: None)  # meta tensors hold no numbers to check
    module.trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("meta")))
    module.setup("fit")
    samples = [module.train, module.test, module.clients.samples, module.server.samples]
    tensors = [tensor for part in samples for tensor in (part.inputs, part.targets)]
    assert {tensor.device.type for tensor in [*tensors, *module.clients.indices, *module.server.indices]} == {"meta"}
    assert module.clients.samples is module.train
    assert module.round(0).honest.ids == before


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
def test_rounds_go_on_where_the_trainer_stands(done, rounds):
    data = ready()
    data.trainer = SimpleNamespace(global_step=done, max_steps=5)
    loader = data.train_dataloader()
    assert len(loader) == 5
    assert list(loader) == rounds
    assert [data.transfer_batch_to_device(t, torch.device("cpu"), 0).index for t in loader] == rounds


@pytest.mark.parametrize("trainer", [None, SimpleNamespace(global_step=0, max_steps=-1)])
def test_rounds_need_their_number(trainer):
    data = ready()
    data.trainer = trainer
    with pytest.raises(SettingError, match=r"a run needs its number of rounds; set trainer.max_steps"):
        len(data.train_dataloader())


def test_a_class_missing_from_the_servers_data():
    with pytest.raises(SettingError, match=r"server needs 2 samples of class 2, got 1; lower data.server_samples"):
        ready(Lopsided)
    assert len(ready(Lopsided, server_samples=1).round(0).server) == 3


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (Samples(torch.zeros(2, 2), torch.arange(2), 4), "need one n_classes, got 3 and 4"),
        (Samples(torch.zeros(2, 5), torch.arange(2), 3), r"need one shape, got \(2,\) and \(5,\)"),
        (Samples(torch.zeros(2, 2).byte(), torch.arange(2), 3), "need one type.*, got torch.float32 and torch.uint8"),
    ],
)
def test_what_is_loaded_fits_together(test, message):
    class Own(Toy):
        def load(self):
            return world.samples(6), test

    with pytest.raises(DataError, match=message):
        ready(Own)


@pytest.mark.parametrize(
    ("loaded", "found"),
    [
        ((torch.zeros(3, 2), torch.zeros(3)), "Tensor and Tensor"),
        (world.samples(2), "Samples"),
        ([world.samples(2), (torch.zeros(3, 2), torch.zeros(3))], "Samples and tuple"),
        ((), "none"),
    ],
)
def test_what_is_loaded_is_two_samples(loaded, found):
    class Own(Toy):
        def load(self):
            return loaded

    with pytest.raises(SettingError, match=f"load of Own must return two lightning_fl.Samples, .*, got {found}\\."):
        ready(Own)


def test_more_clients_than_the_partition_can_serve():
    with pytest.raises(SettingError, match=r"lower federation\.n_clients"):
        ready(federation=Federation(19, 0, "supplement", "uniform"))
    with pytest.raises(SettingError, match=r"multiple of c\^2 = 9 clients"):
        ready(partition=Step(4.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server_samples": -1}, "toy needs server_samples >= 0, got -1"),
        ({"server_samples": [2, 0, 1]}, r"at least 1 of every class, if of any, got \[2, 0, 1\]"),
        ({"server_samples": []}, r"server_samples needs at least 1 .*got \[\]"),
        (
            {"server_samples": np.array([1.5, 1, 1])},
            r"or a list \(a whole number each\) or null as server_samples",
        ),
        ({"server_samples": "20"}, "toy needs a whole number or .* as server_samples, got '20'"),
        ({"server_samples": [1.5, 1.5, 1.5]}, "toy needs a whole number or .* as server_samples, got list"),
        ({"server_noise": "fog"}, "toy's server_noise must be one of gaussian, shot, impulse, speckle, got 'fog'"),
        ({"corruption": 2.0}, "toy needs a whole number or null as corruption, got 2.0; round it"),
        ({"corruption": 6}, "toy needs 1 <= corruption <= 5, got 6"),
        ({"eval_batch_size": 0}, "toy needs eval_batch_size >= 1, got 0"),
        ({"eval_batch_size": "all"}, "toy needs a whole number as eval_batch_size, got 'all'"),
        ({"validation_share": "0.1"}, "toy needs a number or null as validation_share, got '0.1'"),
        ({"validation_share": 1.0}, "toy needs 0 < validation_share < 1, got 1.0"),
        ({"federation": 4}, r"toy needs a Federation such as fl.Federation\(.*\) as federation, got 4"),
    ],
)
def test_settings_out_of_range(changes, message):
    with pytest.raises(SettingError, match=message):
        make(**changes)


def test_a_partition_is_no_name():
    with pytest.raises(SettingError, match=r"needs a Partition such as fl.partition.Iid\(\) as partition, got 'iid'"):
        make(partition="iid")


@pytest.mark.parametrize("use", [lambda data: data.setup(), lambda data: data.reseeded(1)])
def test_a_class_that_leaves_out_the_base_s_init_is_told(use):
    class Own(Toy):
        def __init__(self):
            pass

    with pytest.raises(SettingError, match=r"Own has no partition yet; call super\(\).__init__\(\) in its __init__"):
        use(Own())


def test_a_share_of_each_client_is_kept_for_validation():
    plain = ready(federation=Federation(3, 1, "supplement", "uniform"), seed=5)
    data = ready(federation=Federation(3, 1, "supplement", "uniform"), seed=5, validation_share=1 / 3)
    assert plain.validation is None
    assert data.clients.sizes == [round(n - round(n / 3)) for n in plain.clients.sizes]
    left = torch.cat(list(data.clients.indices))
    for ours, theirs in zip(data.clients.indices, plain.clients.indices, strict=True):
        assert set(ours.tolist()) < set(theirs.tolist())
    assert len(data.validation) == len(data.train) - len(left)
    rows = {tuple(row.tolist()) for row in data.validation.inputs}
    assert not rows & {tuple(row.tolist()) for row in data.train.inputs[left]}
    assert not rows & {tuple(row.tolist()) for row in data.test.inputs}
    assert not rows & {tuple(row.tolist()) for row in data.server.samples.inputs}
    for seed in (5, 6):  # of the run, not of the partition
        again = ready(federation=Federation(3, 1, "supplement", "uniform"), seed=seed, validation_share=1 / 3)
        assert torch.equal(again.validation.inputs, data.validation.inputs)


def test_the_same_few_samples_of_each_class_train_whatever_the_seed():
    plain, few = ready(seed=5), [ready(seed=seed, train_per_class=2, server_samples=1) for seed in (5, 6)]
    assert few[0].train.targets.bincount().tolist() == [2] * plain.train.n_classes
    assert torch.equal(few[0].train.inputs, few[1].train.inputs)
    rows = {tuple(row.tolist()) for row in plain.train.inputs}
    assert {tuple(row.tolist()) for row in few[0].train.inputs} < rows
    assert torch.equal(few[0].test.inputs, plain.test.inputs)


def test_users_follow_the_samples_of_each_class_that_train():
    class OfUsers(Toy):
        def load(self):
            train, test = super().load()
            self.users = [tuple(row.tolist()) for row in train.inputs]
            return train, test

    class Asked(Iid):
        def with_users(self, users):
            self.users = users
            return self

    data = OfUsers(Asked(), Federation(3, 0), train_per_class=2, server_samples=1)
    for each in (data, data.reseeded(1)):  # which loads once more
        each.setup()
        assert each.partition.users == [tuple(row.tolist()) for row in each.train.inputs]


def test_another_partition_seed_keeps_others_for_validation():
    class Dealt(Partition):
        def assign(self, targets, n_clients, n_classes, generator):
            return list(torch.arange(len(targets)).tensor_split(n_clients))

    settings = {"partition": Dealt(), "server_samples": 0, "validation_share": 0.5}
    ours, theirs = (held(ready(partition_seed=seed, **settings).clients) for seed in (0, 1))
    assert [len(part) for part in ours] == [len(part) for part in theirs]
    assert ours != theirs


@pytest.mark.parametrize(
    ("share", "message"), [(0.0, "0 < validation_share"), (1.0, "share < 1"), (0.01, "keeps none")]
)
def test_a_share_keeps_something_and_leaves_something(share, message):
    with pytest.raises(SettingError, match=message):
        ready(validation_share=share)


def test_every_client_goes_on_with_a_sample():
    data = ready(validation_share=0.99, server_samples=0)
    assert data.clients.sizes == [1] * 4


def test_a_path_is_a_path_and_an_array_of_rows_is_a_partition_of_ones_own(tmp_path):
    x, y = torch.randn(6, 2), torch.arange(6) % 2
    assert Mnist(root=tmp_path, corruption_cache=Path("x")).corruption is None
    for rows in ([[0, 1, 4], [2, 3, 5]], np.array([[0, 1, 4], [2, 3, 5]]), torch.tensor([[0, 1, 4], [2, 3, 5]])):
        data = fl.TensorData((x, y), (x, y), partition=rows, n_byzantine=0)
        data.setup()
        assert [list(map(int, indices)) for indices in data.clients.indices] == [[0, 1, 4], [2, 3, 5]]
    for wrong, message in [("iid", "needs a Partition such as"), (Iid, "write Iid")]:
        with pytest.raises(SettingError, match=message):
            fl.TensorData((x, y), (x, y), partition=wrong)
    with pytest.raises(SettingError, match="needs a Federation such as"):
        fl.TensorData((x, y), (x, y), federation=4)


def test_numbers_of_any_precision_fit_together():
    y = torch.arange(2)
    check_alike(Samples(torch.zeros(2, 2).double(), y, 2), Samples(torch.zeros(2, 2), y, 2))
