"""torchvision's models without batch statistics."""

import pytest
import torch
from torch import nn

from lightning_fl import SettingError
from lightning_fl.model.torchvision import Torchvision, models


def test_only_the_norms_are_replaced():
    model, theirs = Torchvision("resnet18", 7), models.resnet18(num_classes=7)
    ours = {name.removeprefix("net."): value.shape for name, value in model.named_parameters()}
    assert ours == {name: value.shape for name, value in theirs.named_parameters()}
    assert not list(model.buffers())
    norms = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    assert [layer.num_channels for layer in norms] == [
        layer.num_features for layer in theirs.modules() if isinstance(layer, nn.BatchNorm2d)
    ]
    assert {layer.num_groups for layer in norms} == {32}
    assert not [layer for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def test_groups_divide_the_channels():
    norms = [layer for layer in Torchvision("mobilenet_v2").modules() if isinstance(layer, nn.GroupNorm)]
    assert {(layer.num_channels, layer.num_groups) for layer in norms} >= {(24, 8), (144, 16), (320, 32)}


def test_grey_images_count_three_times():
    model, grey = Torchvision("resnet18", 5).eval(), torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        assert torch.equal(model(grey), model(grey.repeat(1, 3, 1, 1)))


def test_auxiliary_heads_are_left_out():
    assert Torchvision("googlenet", 5)(torch.zeros(2, 3, 64, 64)).shape == (2, 5)


@pytest.mark.parametrize("name", ["resnet17", "fcn_resnet50", "fasterrcnn_resnet50_fpn"])
def test_names_are_torchvisions(name):
    with pytest.raises(SettingError, match=r"model.name must be a classification model in torchvision\.models, got '"):
        Torchvision(name)
    with pytest.raises(SettingError, match="n_classes of at least 1"):
        Torchvision("resnet18", 0)
