"""Rare inputs from a file."""

from dataclasses import replace

import pytest
import torch

from lightning_fl import ClientBatch, DataError, SettingError
from lightning_fl.adversary.edge_case import EdgeCase
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.contract import world
from lightning_fl.contract.images import bytes_of, pictures
from lightning_fl.round import Round
from tests import training
from tests.adversary.test_backdoor import data, module

SETTINGS = {"target": 2, "share": 0.5, "train_share": 0.6, "radius": None, "factor": 1.0}


@pytest.fixture
def path(tmp_path):
    """Five images whose every byte is 201 + their number; ordinary ones stay below 200."""
    images = (201 + torch.arange(5, dtype=torch.uint8))[:, None, None, None].repeat(1, 2, 12, 14)
    torch.save(images, tmp_path / "rare.pt")
    return str(tmp_path / "rare.pt")


def test_some_samples_make_way_for_rare_ones_of_the_first_part(path):
    batch = ClientBatch(bytes_of(42), list(torch.arange(42).split([30, 12])), (3, 8))
    poisoned = EdgeCase(path, **SETTINGS).poison(batch, seed=0)
    seen = set()
    for indices, places, size in zip(batch.indices, poisoned.indices, (30, 12), strict=True):
        before, after = batch.samples.inputs[indices], poisoned.samples.inputs[places]
        changed = [i for i in range(size) if not torch.equal(before[i], after[i])]
        assert len(changed) == size // 2
        for i in changed:
            seen |= set(after[i].unique().tolist())
        labels = poisoned.samples.targets[places]
        assert all(labels[i] == (2 if i in changed else batch.samples.targets[indices[i]]) for i in range(size))
    assert seen == {201, 202, 203}  # three of five; 21 draws miss one with a chance of 1 in 1,600
    assert torch.equal(batch.samples.inputs, bytes_of(42).inputs)


def test_which_rare_inputs_a_client_gets_depends_on_seed_and_client(path):
    def drawn(seed):
        batch = ClientBatch(bytes_of(60), list(torch.arange(60).split(20)), (3, 8, 9))
        poisoned = EdgeCase(path, **(SETTINGS | {"share": 1.0})).poison(batch, seed)
        images = [poisoned.samples.inputs[places][:, 0, 0, 0] for places in poisoned.indices]
        return [image.bincount(minlength=204)[201:].tolist() for image in images]

    assert len({tuple(counts) for counts in drawn(0)}) == 3
    assert all(here != there for here, there in zip(drawn(0), drawn(1), strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rare_inputs_are_finite(tmp_path, value):
    inputs = torch.zeros(5, 1, 2, 2)
    inputs[3:, 0, 1] = value
    torch.save(inputs, tmp_path / "rare.pt")
    with pytest.raises(DataError, match=r"rare\.pt holds NaN or inf in 2 inputs \(first: 3\)"):
        EdgeCase(str(tmp_path / "rare.pt"))


def test_success_is_measured_on_the_others(path):
    triggered = EdgeCase(path, **SETTINGS).triggered(bytes_of(9))
    assert triggered.inputs[:, 0, 0, 0].tolist() == [204, 205]
    assert triggered.targets.tolist() == [2, 2]
    assert (triggered.mean, triggered.std) == ((0.25, 0.5), (0.5, 0.2))


@pytest.mark.parametrize(("train_share", "n"), [(0.01, 1), (0.5, 2), (0.99, 4)])
def test_both_parts_have_an_input(path, train_share, n):
    test = EdgeCase(path, **(SETTINGS | {"train_share": train_share})).triggered(bytes_of(9))
    assert len(test) == 5 - n


def test_projected_onto_the_radius_then_scaled(path):
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    context = replace(world.context(), round=Round(0, 0.1, 0))
    attack = EdgeCase(path, **(SETTINGS | {"radius": 0.25, "factor": 50.0}))
    # 0.1 times 5 is farther than 0.25: shortened to 2.5; 0.1 times 0.5 is not.
    torch.testing.assert_close(attack.finish(rows, 7, context), 50 * torch.tensor([[1.5, 2.0], [0.3, 0.4]]))
    still = replace(context, round=Round(0, 0.0, 0))
    torch.testing.assert_close(attack.finish(rows, 7, still), 50 * rows)


def test_the_radius_is_about_the_model_that_a_client_uploads(path):
    context = replace(world.context(learning_rate=1.0), client=LocalSgd(5, "mean_gradient", learning_rate=0.01))
    attack = EdgeCase(path, **(SETTINGS | {"radius": 0.25}))
    sent = attack.finish(torch.tensor([[30.0, 40.0], [0.3, 0.4]]), 7, context)
    # 5 steps at 0.01 against a mean gradient of 50 go 2.5 far, ten times the radius; 0.025 is inside.
    torch.testing.assert_close(sent, torch.tensor([[3.0, 4.0], [0.3, 0.4]]))


def test_trains_and_reports(tmp_path):
    rare = pictures(world.samples(4, seed=8)).inputs * torch.tensor([1.0, -1.0]).repeat(6)
    torch.save(rare, tmp_path / "rare.pt")
    attack = EdgeCase(str(tmp_path / "rare.pt"), **SETTINGS)
    run, federation = module(), data()
    training.fit(training.trainer([attack], 20), run, federation)
    hits = run.model(rare[7:]).argmax(1) == 2
    assert run.evaluation["attack/success_rate"] == pytest.approx(hits.float().mean().item(), abs=1e-6)
    context = replace(world.context(), model=run.model, byzantine=federation.round(0).byzantine)
    poisoned = attack.poison(context.byzantine, context.round.seed)
    expected = Gradient().updates(run.model, poisoned, context.round).updates
    assert torch.equal(attack.attack(world.updates(), 2, context), expected)


def test_its_file(tmp_path, path):
    for missing in (None, str(tmp_path / "none.pt")):
        with pytest.raises(SettingError, match=r"edge_case needs a file of rare inputs.*set adversary.path"):
            EdgeCase(missing, **SETTINGS)
    (tmp_path / "text.pt").write_text("no tensor")
    with pytest.raises(DataError, match=r"text.pt cannot be read as a tensor"):
        EdgeCase(str(tmp_path / "text.pt"), **SETTINGS)
    for content, shape in [({"x": 1}, "dict"), (torch.zeros(1, 2), r"\(1, 2\)"), (torch.zeros(3), r"\(3,\)")]:
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(DataError, match=rf"needs a tensor of at least two inputs, got {shape}"):
            EdgeCase(str(tmp_path / "other.pt"), **SETTINGS)
    with pytest.raises(
        SettingError, match=r"such as the data set's, \(1, 12, 12\) of torch.float32, got \(2, 12, 14\)"
    ):
        training.fit(training.trainer([EdgeCase(path, **SETTINGS)], 2), module(), data())
