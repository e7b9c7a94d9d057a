"""Images as a CPU computes them fastest: the same numbers in another order in memory."""

import platform
import subprocess
import sys
from copy import deepcopy

import pytest
import torch
from torch import nn

from lightning_fl.client.gradient import Gradient
from lightning_fl.model.cnn import Cnn
from lightning_fl.model.lenet import Lenet
from lightning_fl.model.mlp import Mlp
from lightning_fl.network import images
from lightning_fl.network.images import _CHOICES, arranged, at_a_time, convolves_on_cpu, keep_freed, outputs
from lightning_fl.samples import ClientBatch, Samples


class Viewing(nn.Module):
    """Takes its features by a view, which channels that are last do not allow."""

    def __init__(self):
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(144, 5)

    def forward(self, x):
        return self.linear(self.convolution(x).view(len(x), -1))


class Striding(nn.Module):
    """Reads memory instead of pixels, so that the order there matters."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 8)

    def forward(self, x):
        return self.convolution(torch.as_strided(x, x.shape, (192, 64, 8, 1))).flatten(1)


def pictures(n, channels=3, side=8):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(n, channels, side, side, generator=draw)


def last(x):
    return x.stride(1) == 1 and x.stride(3) == x.shape[1]


def samples(n, channels, side, n_classes=5):
    x = (pictures(n, channels, side) * 40 + 128).clamp(0, 255).to(torch.uint8)
    return Samples(x, torch.arange(n) % n_classes, n_classes)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_model_with_convolutions_gets_the_same_pixels_with_their_channels_last(channels):
    x = pictures(6, channels)
    found = arranged(nn.Sequential(nn.Conv2d(channels, 4, 3), nn.MaxPool2d(2)), x)
    assert last(found)
    assert torch.equal(found, x)
    assert last(nn.Conv2d(channels, 4, 3)(found))  # so the layers behind it do so, too


@pytest.mark.parametrize("model", [Viewing(), Striding(), nn.Sequential(nn.Flatten(), nn.Linear(192, 5))])
def test_other_models_get_what_there_is(model):
    x = pictures(4)
    assert arranged(model, x) is x


@pytest.mark.parametrize("x", [torch.zeros(4, 3, 8, 8, dtype=torch.int64), torch.zeros(4, 7), torch.zeros(4, 3, 8)])
def test_what_is_no_image_stays(x):
    assert arranged(nn.Sequential(nn.Conv2d(3, 4, 3)), x) is x


def test_a_trial_changes_nothing_in_the_model():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert last(arranged(model, pictures(4)))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("model", "channels", "side"),
    [
        (Lenet(1, 28, (6, 16), (20,), 5), 1, 28),
        (Cnn(3, 18, 5), 3, 18),
        (Viewing(), 3, 8),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5)).eval(), 3, 8),
    ],
)
@pytest.mark.parametrize("size", [3, 150])
def test_gradients_are_those_of_plain_autograd(model, channels, side, size, monkeypatch):
    """Side by side for few samples, slice by slice for many.

    In double precision: in float32, rounding puts an activation in a few hundred thousand on the other side of a kink.
    """
    model = deepcopy(model).double()
    data = Samples(pictures(2 * size, channels, side).double(), torch.arange(2 * size) % 5, 5)
    batch = ClientBatch(data, list(torch.arange(2 * size).split(size)), range(2))
    monkeypatch.setattr(images, "_NUMBERS", 2**18)
    found = Gradient().gradients(model, batch)
    for indices, row, loss in zip(batch.indices, found.updates, found.losses, strict=True):
        x, y = data.gather(indices)
        mean = nn.functional.cross_entropy(model(x), y)
        expected = torch.cat([part.flatten() for part in torch.autograd.grad(mean, list(model.parameters()))])
        assert (row - expected).norm() <= 1e-12 * expected.norm()
        torch.testing.assert_close(loss, mean, rtol=1e-12, atol=0)


@pytest.mark.parametrize("model", [Cnn(3, 18, 5), Viewing(), Mlp(972, [4], 5)])
def test_outputs_come_in_pieces_that_fit_the_caches(model, monkeypatch):
    side = 8 if isinstance(model, Viewing) else 18
    data, seen = samples(50, 3, side), []
    model.register_forward_hook(lambda module, arguments, result: seen.append(len(result)))
    monkeypatch.setattr(images, "_NUMBERS", 2**14)
    x, _ = data.gather(torch.arange(50))
    size = at_a_time(model, data)
    seen.clear()
    with torch.no_grad():
        found = outputs(model, x, data)
        assert max(seen) <= size
        torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)
    assert size == 50 if isinstance(model, Mlp) else 32 <= size < 50


def test_only_a_cpu_wants_few_images_at_a_time():
    model = Cnn(3, 18, 5)
    assert convolves_on_cpu(model, torch.device("cpu"))
    assert not convolves_on_cpu(model, torch.device("cuda"))
    assert not convolves_on_cpu(Mlp(972, [4], 5), torch.device("cpu"))


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

# Fresh pages, 4 KB each, that ten passes through a small convolution touch.
PAGES = """
import resource, torch
from lightning_fl.network.images import keep_freed
assert keep_freed({})
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(1152, 10)
)
images = torch.randn(256, 1, 28, 28)
for k in range(40):
    if k == 30:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model(images).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@glibc
def test_freed_memory_is_used_again():
    """By default it is 23,000."""
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5000


@pytest.mark.parametrize("name", sorted(_CHOICES))
def test_the_environment_has_the_last_word(name):
    assert not keep_freed({name: "1"})


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not keep_freed({})
