"""torchvision's VGG16.  On the meta device, where its 138 million parameters take no memory, as far as that goes."""

import pytest
import torch
from torch import nn

from lightning_fl import DataError
from lightning_fl.model.vgg16 import Vgg16


def on_meta(n_classes=100, weights=None):
    with torch.device("meta"):
        return Vgg16(n_classes, weights)


def state(n_classes=1000):
    """A state dict of the right shapes in a few bytes: each tensor is one number, repeated."""
    shapes = {name: value.shape for name, value in on_meta(n_classes).state_dict().items()}
    return {name: torch.tensor(float(i)).expand(shape) for i, (name, shape) in enumerate(shapes.items())}


def test_it_is_the_papers_net():
    # 13 convolutions 3 x 3 of stride 1 in five blocks, each closed by maximum pooling; 4096-4096-c.
    model = on_meta(100)
    layers = [layer for layer in model.features if not isinstance(layer, nn.ReLU)]
    widths = [getattr(layer, "out_channels", "pool") for layer in layers]
    assert widths == [
        *[64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool"],
        *[512, 512, 512, "pool", 512, 512, 512, "pool"],
    ]
    assert {(layer.kernel_size, layer.stride, layer.padding) for layer in layers if isinstance(layer, nn.Conv2d)} == {
        ((3, 3), (1, 1), (1, 1))
    }
    assert [layer.out_features for layer in model.classifier if isinstance(layer, nn.Linear)] == [4096, 4096, 100]
    assert {layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)} == {0.0}


@pytest.mark.parametrize("side", [32, 64, 224])
def test_it_takes_images_of_any_size_from_32_pixels(side):
    assert on_meta(100)(torch.empty(2, 3, side, side, device="meta")).shape == (2, 100)


@pytest.mark.slow
def test_weights_of_a_file_are_taken_but_for_the_last_layer(tmp_path):
    torch.save(state(1000), tmp_path / "weights.pth")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Vgg16(7, str(tmp_path / "weights.pth"))
    for i, (name, value) in enumerate(model.state_dict().items()):
        if name.startswith("classifier.6."):
            assert value.shape[0] == 7
            assert 0 < value.abs().max() < 1
        else:
            assert (value.min(), value.max()) == (i, i)
    assert all(p.requires_grad for p in model.parameters())


def without(name):
    return {key: value for key, value in state().items() if key != name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: without("features.28.bias"), r"features.28.bias needs shape \(512,\), got none"),
        (
            lambda: state() | {"features.0.weight": torch.zeros(64, 1, 3, 3)},
            r"needs shape \(64, 3, 3, 3\), got \(64, 1,",
        ),
        (lambda: state() | {"features.0.bias": "x"}, r"features.0.bias needs shape \(64,\), got none"),
        (lambda: {"epoch": 3, "state_dict": state()}, r"features.0.weight needs shape \(64, 3, 3, 3\), got none"),
        (lambda: [1, 2], r"features.0.weight needs shape .*, got none"),
        (lambda: torch.zeros(3), r"features.0.weight needs shape .*, got none"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, message):
    path = tmp_path / "weights.pth"
    torch.save(content(), path)
    with pytest.raises(DataError, match=rf"weights.pth is not a state dict of torchvision's vgg16: .*{message}"):
        on_meta(100, str(path))


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"<html>404</html>", "whole", "cut"])
def test_a_file_that_cannot_be_read_is_one_error(tmp_path, content):
    path = tmp_path / "weights.pth"
    if isinstance(content, str):
        torch.save(nn.Linear(2, 2) if content == "whole" else state(), path)  # objects run code when they are read
        content = path.read_bytes()[: None if content == "whole" else -500]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"vgg16 cannot read .*weights.pth \(\w+Error\); weights needs a state"):
        on_meta(100, str(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"vgg16 cannot read .*absent.pth \(FileNotFoundError\)"):
        on_meta(100, str(tmp_path / "absent.pth"))
