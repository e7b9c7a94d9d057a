"""VGG16, the RAGA paper's net for CIFAR-100.

Karen Simonyan, Andrew Zisserman. Very Deep Convolutional Networks for Large-Scale Image Recognition. ICLR 2015.
arXiv:1409.1556.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torchvision.models.vgg import VGG, cfgs, make_layers

from lightning_fl.errors import DataError
from lightning_fl.ranges import Checked, PositiveInt

_HEAD = "classifier.6."


class Vgg16(Checked, VGG):
    """torchvision's VGG16 without dropout, for images of 3 channels and at least 32 pixels per side.

    With 1,000 classes d = 138,357,544, with 100 classes 134,670,244: a client's update takes 539 MB, those of the
    paper's 50 clients 27 GB.

    Args:
        n_classes: Length of the output.
        weights: File to start from, torchvision's vgg16-397923af.pth or another state dict of its VGG16; the last layer
            is drawn anew.  None: everything is drawn by torchvision's rule.

    Raises:
        SettingError: If n_classes is below 1.
        DataError: If the file cannot be read or is not of a VGG16.

    Note:
        The paper fine-tunes without saying from which weights, at which image size and which layers.  Here images keep
        their size, torchvision's average pooling repeats the last 1 x 1 map of a CIFAR image, and all layers train.
        Dropout is off; the paper does not say.
    """

    def __init__(self, n_classes: PositiveInt = 100, weights: str | None = None):
        layers = make_layers(cfgs["D"])
        super().__init__(layers, num_classes=n_classes, init_weights=weights is None, dropout=0.0)
        if weights is not None:
            self._start_from(Path(weights))

    def _start_from(self, path: Path) -> None:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises whatever its unpickler raises
            raise DataError(
                f"vgg16 cannot read {path} ({type(error).__name__}); weights needs a state dict of torch.save, "
                f"such as torchvision's vgg16-397923af.pth."
            ) from error
        found = found if isinstance(found, Mapping) else {}
        state = self.state_dict()
        for name, value in state.items():
            if not name.startswith(_HEAD):
                there = getattr(found.get(name), "shape", None)
                if there != value.shape:
                    raise DataError(
                        f"{path} is not a state dict of torchvision's vgg16: {name} needs shape {tuple(value.shape)}, "
                        f"got {'none' if there is None else tuple(there)}."
                    )
                state[name] = found[name]
        self.load_state_dict(state)
