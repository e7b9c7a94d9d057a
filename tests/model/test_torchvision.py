"""torchvision's models without batch statistics."""

import re

import pytest
import torch
from torch import nn

from lightning_fl import DataError, FederatedModule, SettingError
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
    with pytest.raises(SettingError, match="torchvision needs n_classes >= 1, got 0"):
        Torchvision("resnet18", 0)


@pytest.fixture
def trained(tmp_path):
    """A net of theirs for 7 classes with running statistics, and the file of its weights."""
    torch.manual_seed(0)
    net = models.resnet18(num_classes=7)
    net(torch.randn(4, 3, 32, 32))
    torch.save(net.state_dict(), tmp_path / "net.pth")
    return net.eval(), str(tmp_path / "net.pth")


def features(net, x):
    net.fc = nn.Identity()
    with torch.no_grad():
        return net(x)


def test_frozen_it_starts_as_it_was_trained(trained):
    net, file = trained
    model = Torchvision("resnet18", 3, file, norm="frozen")
    FederatedModule(model)  # which takes it in training mode
    x = torch.randn(4, 3, 32, 32)
    assert model(x).shape == (4, 3)
    torch.testing.assert_close(features(model.net.train(), x), features(net, x))
    assert all(isinstance(p, nn.Parameter) and "bn" not in name for name, p in model.named_parameters())


def test_all_but_the_head_is_taken_over(trained):
    net, file = trained
    torch.manual_seed(1)
    model, theirs = Torchvision("resnet18", 7, file), net.state_dict()  # the head is new however many classes there are
    for name, value in model.net.named_parameters():
        assert torch.equal(value, theirs[name]) != name.startswith("fc.")
    small = Torchvision("resnet18", 7, file, "cifar").net
    assert small.conv1.weight.shape == (64, 3, 3, 3)
    assert torch.equal(small.layer1[0].conv1.weight, theirs["layer1.0.conv1.weight"])


def test_a_small_stem_keeps_height_and_width():
    net = Torchvision("resnet18", 5, stem="cifar").net
    assert net.maxpool(net.conv1(torch.zeros(1, 3, 32, 32))).shape == (1, 64, 32, 32)
    with torch.device("meta"):
        d = sum(p.numel() for p in Torchvision("resnet18", 10).parameters())
    assert d == 11_181_642


def test_torchvisions_weights_are_fetched_by_name(monkeypatch):
    net = models.resnet18(num_classes=1000)
    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", lambda self, **_: net.state_dict())
    model = Torchvision("resnet18", 3, "IMAGENET1K_V1")
    assert torch.equal(model.net.conv1.weight, net.conv1.weight)

    def lost(self, **_):
        raise OSError("no network")

    monkeypatch.setattr(models.ResNet18_Weights, "get_state_dict", lost)
    with pytest.raises(
        DataError,
        match=r"DEFAULT of resnet18 could not be .*: no network; give model.weights a file",
    ):
        Torchvision("resnet18", 3, "DEFAULT")


def test_older_files_are_read_as_torchvision_reads_them(monkeypatch, tmp_path):
    """Without counters, of densenets with other names."""
    nets = {"densenet121": models.DenseNet121_Weights, "googlenet": models.GoogLeNet_Weights}
    for name, weights in nets.items():
        more = {"init_weights": False} if name == "googlenet" else {}
        state = {
            re.sub(r"(denselayer\d+\.(?:norm|conv))([12]\.)", r"\1.\2", key): value
            for key, value in models.get_model(name, weights=None, **more).state_dict().items()
            if not key.endswith("num_batches_tracked")
        }
        monkeypatch.setattr(weights, "get_state_dict", lambda self, state=state, **_: state)
        x = torch.rand(1, 3, 64, 64)
        theirs = models.get_model(name, weights="DEFAULT").eval()
        ours = Torchvision(name, 7, "DEFAULT", norm="batch").net.eval()
        head = "classifier" if name == "densenet121" else "fc"
        for net in (theirs, ours):
            setattr(net, head, nn.Identity())
        with torch.no_grad():
            assert torch.equal(ours(x), theirs(x)), name
    net = models.resnet18(num_classes=3)
    torch.save({key: value for key, value in net.state_dict().items() if "tracked" not in key}, tmp_path / "old.pth")
    assert torch.equal(Torchvision("resnet18", 3, str(tmp_path / "old.pth")).net.conv1.weight, net.conv1.weight)


def test_weights_that_do_not_fit(trained, tmp_path):
    _, file = trained
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"PK")
    for name, settings, message in [
        ("resnet34", {"weights": file}, r"must hold the state dict of the model, got none .* layer1\.2"),
        ("resnet18", {"weights": "V3"}, r"weights needs a file, or torchvision's for resnet18 \(.*IMAGENET1K_V1"),
        ("resnet18", {"norm": "frozen"}, "norm=frozen keeps the statistics of weights, got none"),
        ("alexnet", {"stem": "cifar"}, "stem=cifar needs a ResNet, got model.name=alexnet"),
        ("resnet18", {"stem": "mnist"}, "torchvision's stem must be one of imagenet, cifar"),
        ("resnet18", {"norm": "layer"}, "torchvision's norm must be one of group, frozen, batch"),
    ]:
        with pytest.raises(SettingError, match=message):
            Torchvision(name, 3, **settings)
    with pytest.raises(DataError, match=r"broken\.pth of resnet18 could not be fetched or read"):
        Torchvision("resnet18", 3, str(broken))
