"""Fashion-MNIST: 60,000 training and 10,000 test images of clothes, in MNIST's format.

Han Xiao, Kashif Rasul, Roland Vollgraf. Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms. 2017. arXiv:1708.07747.

Classes: 0 T-shirt/top, 1 trouser, 2 pullover, 3 dress, 4 coat, 5 sandal, 6 shirt, 7 sneaker, 8 bag, 9 ankle boot.
6,000 training and 1,000 test images each.  Memory: 55 MB.
"""

from pathlib import Path
from typing import Any

from torchvision.datasets import FashionMNIST as TorchvisionFashionMNIST

from lightning_fl.data import _idx
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.fetch import debian_package, ensure, torchvision_mirrors
from lightning_fl.samples import Samples

MEAN, STD = (0.2860,), (0.3530,)
CHECKSUMS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


class FashionMnist(FederatedDataModule):
    """Fashion-MNIST, from torchvision's mirrors or the Debian archive; see the base class for the other settings.

    Args:
        root: Folder of data sets; the files are in ``root/FashionMNIST/raw`` as torchvision wants them.
        standardize: Whether pixels are standardised by mean 0.2860 and deviation 0.3530; otherwise they are in [0, 1].
    """

    class_names = tuple(TorchvisionFashionMNIST.classes)

    def __init__(self, root: str = "data", standardize: bool = True, **settings: Any):
        super().__init__(**settings)
        self.folder = Path(root) / "FashionMNIST" / "raw"
        self.standardize = standardize

    def prepare_data(self) -> None:
        """Fetch the files unless they are there.

        Raises:
            DataError: If a file is corrupt or no source answers.
        """
        sources = {
            "torchvision's mirrors": torchvision_mirrors(TorchvisionFashionMNIST, "FashionMNIST/raw"),
            "Debian package dataset-fashion-mnist": debian_package(
                "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"
            ),
        }
        ensure("Fashion-MNIST", self.folder, CHECKSUMS, sources, "data=mnist_5k, which is embedded")

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 1, 28, 28) bytes."""
        return _idx.read(self.folder, CHECKSUMS, MEAN, STD, self.standardize)
