"""Random crops and mirror images."""

from dataclasses import replace

import pytest
import torch

from lightning_fl import ClientBatch, Round, Samples, SettingError, TensorData
from lightning_fl.augment import augmented, crop_flip
from lightning_fl.client.base import minibatches
from lightning_fl.client.gradient import Gradient
from lightning_fl.contract import world
from lightning_fl.partition.iid import Iid
from tests import training

IMAGES = torch.randint(1, 256, (40, 3, 5, 6), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
DATA = Samples(IMAGES, torch.arange(40) % 3, 3, augment="crop_flip")


def slow(image, top, left, mirrored):
    """One image cut out of itself with a black border of 4."""
    wide = torch.zeros(3, 13, 14, dtype=torch.uint8)
    wide[:, 4:9, 4:10] = image
    part = wide[:, top : top + 5, left : left + 6]
    return part.flip(2) if mirrored else part


def clients(ids=range(4)):
    parts = torch.arange(40).split(10)
    return minibatches(ClientBatch(DATA, [parts[i] for i in ids], list(ids)), 7, Round(0, 0.1, 0), steps=2)


def test_every_crop_and_mirror_image_comes_equally_often():
    keys = torch.randint(-(2**63), 2**63 - 1, (20000,), generator=torch.Generator().manual_seed(1))
    found = crop_flip(IMAGES[:1].expand(20000, -1, -1, -1), keys)
    variants = [slow(IMAGES[0], u, v, m) for u in range(9) for v in range(9) for m in (False, True)]
    counts = torch.stack([(found == variant).flatten(1).all(1).sum() for variant in variants])
    assert counts.sum() == 20000  # there is no other
    expected = 20000 / 162
    assert ((counts - expected).square() / expected).sum() < 240  # chi-squared, 161 degrees: one in 10,000


def images(batch):
    """What each client computes on, by the sample's number."""
    found = augmented(batch)
    return {
        (client, int(number)): found.samples.inputs[place]
        for client, numbers, places in zip(batch.ids, batch.indices, found.indices, strict=True)
        for number, place in zip(numbers, places, strict=True)
    }


def test_a_draw_depends_on_seed_round_step_client_and_sample_alone():
    first, second = clients()
    whole, alone = images(first), images(clients([2])[0])
    assert len(whole) == 28
    assert all(torch.equal(image, whole[place]) for place, image in alone.items())
    turned = replace(first, indices=[part.flip(0) for part in first.indices])
    assert all(torch.equal(image, whole[place]) for place, image in images(turned).items())
    others = [
        replace(first, drawing=second.drawing),
        replace(first, drawing=(Round(1, 0.1, 0), 0)),
        replace(first, drawing=(Round(0, 0.1, 1), 0)),
        replace(first, ids=[4, 5, 6, 7]),
    ]
    for other in others:
        same = [torch.equal(a, b) for a, b in zip(images(other).values(), whole.values(), strict=True)]
        assert sum(same) < 3  # of 28, each with one chance in 162


def test_targets_stay_and_the_samples_too():
    before = DATA.inputs.clone()
    batch = clients()[0]
    found = augmented(batch)
    for numbers, places in zip(batch.indices, found.indices, strict=True):
        assert torch.equal(found.samples.targets[places], DATA.targets[numbers])
    assert torch.equal(DATA.inputs, before)
    plain = replace(batch, samples=replace(DATA, augment=None))
    assert augmented(plain) is plain
    with pytest.raises(SettingError, match="augment=crop_flip draws by round and step, got a batch that names none"):
        augmented(replace(batch, drawing=None))


def test_the_border_is_black_before_pixels_are_normalised():
    data = replace(DATA, mean=(0.5, 0.4, 0.3), std=(0.2, 0.1, 0.3))
    found = augmented(replace(clients()[0], samples=data)).samples
    raw = found.inputs == 0
    assert raw.any()
    expected = torch.tensor([-2.5, -4.0, -1.0])[:, None, None].expand(found.inputs.shape)
    torch.testing.assert_close(found.gather(torch.arange(len(found)))[0][raw], expected[raw])


def data(augment="crop_flip"):
    split = (IMAGES, DATA.targets)
    return TensorData(split, split, Iid(), n_clients=4, server_samples=2, seed=0, augment=augment)


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(90, 3))


def fit(rounds, ckpt_path=None, augment="crop_flip", chunk=None):
    from lightning_fl import FederatedModule

    trainer = training.trainer([], rounds)
    module = FederatedModule(network(), Gradient(5, client_chunk=chunk))
    training.fit(trainer, module, data(augment), ckpt_path)
    return trainer, module


def test_a_run_resumes_bit_for_bit_and_evaluates_on_the_images_as_they_are(tmp_path):
    _, whole = fit(4)
    fit(2)[0].save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = fit(4, tmp_path / "half.ckpt")
    _, other = fit(4, augment=None)
    assert torch.equal(whole.model[1].weight, resumed.model[1].weight)
    assert not torch.equal(whole.model[1].weight, other.model[1].weight)
    for each in (whole, other):
        with torch.no_grad():
            right = each.model(IMAGES.float() / 255).argmax(1) == DATA.targets
        assert each.evaluation["accuracy"] == pytest.approx(right.float().mean().item())


def test_the_engines_agree():
    one, several = (fit(2, chunk=chunk)[1].model[1].weight for chunk in (1, 2))
    torch.testing.assert_close(one, several, rtol=1e-5, atol=1e-6)


def test_the_server_s_samples_stay_as_they_are():
    held = data()
    held.setup()
    assert held.train.augment == "crop_flip"
    assert held.server.samples.augment is held.test.augment is None


def test_other_data_are_refused():
    split = (world.samples().inputs, world.samples().targets)
    wrong = TensorData(split, split, n_clients=3, augment="crop_flip")
    with pytest.raises(SettingError, match="augment needs images, got samples of shape"):
        wrong.setup()
    with pytest.raises(SettingError, match="augment"):
        data("flip")
