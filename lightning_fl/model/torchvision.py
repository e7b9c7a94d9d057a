"""Any classification model of torchvision, by its name there, without batch statistics."""

from difflib import get_close_matches
from math import gcd

from torch import Tensor, nn
from torchvision import models
from torchvision.models import get_model, list_models

from lightning_fl.errors import SettingError, check_counts

_GROUPS = 32
_TWO_HEADS, _ONE_HEAD = ("googlenet", "inception_v3"), {"aux_logits": False, "init_weights": True}


class Torchvision(nn.Module):
    """A model of torchvision with new parameters, its batch normalisation replaced by group normalisation.

    Clients upload parameters only, and the statistics of one client's skewed batch fit no other client, so every
    ``BatchNorm`` becomes a ``GroupNorm`` of 32 groups (or as many as divide 32 and the channels).  Grey images are
    repeated to three channels.  Auxiliary heads are left out.

    Args:
        name: Its name in ``torchvision.models``, such as resnet18, densenet121 or vit_b_16.
        n_classes: Length of the output.

    Raises:
        SettingError: If torchvision has no such model, or n_classes is below 1.

    Note:
        Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun. Deep Residual Learning for Image Recognition. CVPR 2016.
        Yuxin Wu, Kaiming He. Group Normalization. ECCV 2018.  A model whose layers draw otherwise than by
        ``nn.Dropout`` (stochastic depth: efficientnet, convnext, swin) is refused before training.
    """

    def __init__(self, name: str = "resnet18", n_classes: int = 10):
        super().__init__()
        check_counts("torchvision", n_classes=n_classes)
        if name not in (known := list_models(module=models)):
            close = "".join(f"; did you mean {other}?" for other in get_close_matches(name, known, n=1)) or "."
            raise SettingError(f"model.name must be a classification model in torchvision.models, got {name!r}{close}")
        self.net = get_model(name, weights=None, num_classes=n_classes, **(_ONE_HEAD if name in _TWO_HEADS else {}))
        _without_batch_statistics(self.net)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (batch, 1 or 3, height, width) to logits."""
        logits: Tensor = self.net(images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images)
        return logits


def _without_batch_statistics(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(gcd(_GROUPS, child.num_features), child.num_features, child.eps))
        else:
            _without_batch_statistics(child)
