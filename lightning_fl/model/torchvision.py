"""Any classification model of torchvision, by its name there, new or with weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import get_model, get_model_weights, list_models
from torchvision.ops import FrozenBatchNorm2d

from lightning_fl.errors import DataError, SettingError
from lightning_fl.model.group_norm import grouped
from lightning_fl.network.layers import replaced
from lightning_fl.ranges import Checked, PositiveInt
from lightning_fl.text import meant, said

Norm = Literal["group", "frozen", "batch"]
Stem = Literal["imagenet", "cifar"]
_GROUPS = 32
_TWO_HEADS, _ONE_HEAD = ("googlenet", "inception_v3"), {"aux_logits": False, "init_weights": True}


class Torchvision(Checked, nn.Module):
    """A model of torchvision with a new head, without batch statistics.

    Clients upload parameters only, and the statistics of one client's skewed batch fit no other client, so every
    ``BatchNorm`` becomes a ``GroupNorm`` of 32 groups (or as many as divide 32 and the channels).  Grey images are
    repeated to three channels.  Auxiliary heads are left out.

    Args:
        name: Its name in ``torchvision.models``, such as resnet18, densenet121 or vit_b_16.
        n_classes: Length of the output.
        weights: Where training starts, all but the head: a name of torchvision's such as DEFAULT or IMAGENET1K_V1,
            which is downloaded once; or a file with a state dict of the model.  None: as torchvision draws them.
        stem: "imagenet": as it is.  "cifar": a ResNet begins with a new convolution 3 x 3 of stride 1 and does not pool
            after it, for images of about 32 x 32 pixels.
        norm: "group".  "frozen": batch normalisation as of the weights, its statistics, factors and offsets constant,
            so that the model starts as it was trained; needs weights.  "batch" keeps batch statistics, which no client
            uploads: training asks what becomes of them (``buffers``).

    Raises:
        SettingError: If torchvision has no such model or weights, they do not fit, or a setting is out of range.
        DataError: If the weights cannot be read or fetched.

    Note:
        Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun. Deep Residual Learning for Image Recognition. CVPR 2016.
        Yuxin Wu, Kaiming He. Group Normalization. ECCV 2018.  A model whose layers draw otherwise than by
        ``nn.Dropout`` (stochastic depth: efficientnet, convnext, swin) is refused before training.
    """

    def __init__(
        self,
        name: str = "resnet18",
        n_classes: PositiveInt = 10,
        weights: str | None = None,
        stem: Stem = "imagenet",
        norm: Norm = "group",
    ):
        super().__init__()
        if name not in (known := list_models(module=models)):
            raise SettingError(
                f"model.name must be a classification model in torchvision.models, got {name!r}{meant(name, known)}"
            )
        if norm == "frozen" and weights is None:
            raise SettingError("norm=frozen keeps the statistics of weights, got none; give weights=DEFAULT or a file.")
        self.net = _new(name, n_classes)
        if weights is not None:
            _load(self.net, _trained(name, weights), weights, head=_head(name, n_classes))
        if stem == "cifar":
            _small_stem(self.net, name)
        if norm == "group":
            self.net = grouped(self.net, _GROUPS)
        if norm == "frozen":
            replaced(self.net, nn.BatchNorm2d, _frozen)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 1 or 3, height, width) to logits."""
        logits: Tensor = self.net(images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images)
        return logits


def _new(name: str, n_classes: int) -> nn.Module:
    return get_model(name, weights=None, num_classes=n_classes, **(_ONE_HEAD if name in _TWO_HEADS else {}))


def _head(name: str, n_classes: int) -> set[str]:
    """Name the parameters whose shape depends on the number of classes."""
    with torch.device("meta"):
        one, other = (dict(_new(name, c).named_parameters()) for c in (n_classes, n_classes + 1))
    return {key for key in one if one[key].shape != other[key].shape}


def _trained(name: str, weights: str) -> nn.Module | Mapping[str, Any]:
    """Fetch the net that torchvision has trained, or read the state dict of a file."""
    theirs = get_model_weights(name).__members__
    try:
        if weights in theirs:
            with torch.random.fork_rng(devices=[]):  # it draws what the weights replace
                return get_model(name, weights=weights, progress=False)  # which also reads older files
        if Path(weights).is_file():
            state: Mapping[str, Any] = torch.load(weights, "cpu", weights_only=True)
            return state
    except Exception as error:  # of the network, or whatever a damaged file makes of torch.load
        raise DataError(
            f"the weights {weights} of {name} could not be fetched or read: {said(error)}; give "
            f"model.weights a file that torch.load reads, with a state dict."
        ) from error
    raise SettingError(
        f"weights needs a file, or torchvision's for {name} ({', '.join(theirs)}), got {weights}, which is neither."
    )


def _load(net: nn.Module, trained: nn.Module | Mapping[str, Any], weights: str, head: set[str]) -> None:
    """Take over everything but the head; auxiliary heads, which the net lacks, are ignored."""
    state = trained.state_dict() if isinstance(trained, nn.Module) else trained
    if hasattr(trained, "transform_input"):  # of GoogLeNet and Inception, whose weights want another scale
        net.transform_input = trained.transform_input
    counted = {key for key in net.state_dict() if key.endswith("num_batches_tracked")} - state.keys()  # older files
    ours = {key: value for key, value in net.state_dict().items() if key not in head | counted}
    unlike = [key for key, value in ours.items() if getattr(state.get(key), "shape", None) != value.shape]
    if unlike:
        raise SettingError(
            f"{weights} must hold the state dict of the model, got none of this shape for {', '.join(unlike[:3])}"
            f"{', ...' if len(unlike) > 3 else ''}; choose the model that it was saved from."
        )
    net.load_state_dict({key: state[key] for key in ours}, strict=False)


def _small_stem(net: nn.Module, name: str) -> None:
    if not isinstance(net, models.ResNet):
        raise SettingError(f"model.stem=cifar needs a ResNet, got model.name={name}; choose model.stem=imagenet.")
    net.conv1 = nn.Conv2d(3, net.conv1.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision draws it
    net.maxpool = nn.Identity()


def _frozen(layer: nn.BatchNorm2d) -> nn.Module:
    frozen = FrozenBatchNorm2d(layer.num_features, layer.eps)
    frozen.load_state_dict(layer.state_dict())
    return frozen
