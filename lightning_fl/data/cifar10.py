"""CIFAR-10: 50,000 training and 10,000 test colour images of 32 x 32 pixels.

Alex Krizhevsky. Learning Multiple Layers of Features from Tiny Images. Technical report, University of Toronto, 2009.

Classes: 0 airplane, 1 automobile, 2 bird, 3 cat, 4 deer, 5 dog, 6 frog, 7 horse, 8 ship, 9 truck.  5,000 training and
1,000 test images each.  Memory: 184 MB.
"""

from pathlib import Path
from typing import Any

from torchvision.datasets import CIFAR10 as TorchvisionCIFAR10  # noqa: N811

from lightning_fl.data import _cifar, _tree
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.fetch import ensure, torchvision_mirrors, verify
from lightning_fl.samples import Samples

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TRAIN, TEST = [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]
CHECKSUMS = dict(TorchvisionCIFAR10.train_list + TorchvisionCIFAR10.test_list)


class Cifar10(FederatedDataModule):
    """CIFAR-10, from torchvision's mirror or a tree of image files; see the base class for the other settings.

    Args:
        root: Folder of data sets; the original batches are in ``root/cifar-10-batches-py`` as torchvision wants them.
        tree: None: the original batches.  A folder: its images ``{train,test}/CLASS/*.jpg`` (or png), any number per
            class, which are decoded once and kept in ``root/CIFAR10``.
    """

    class_names = CLASSES

    def __init__(self, root: str = "data", tree: str | None = None, eval_batch_size: int = 2000, **settings: Any):
        super().__init__(eval_batch_size=eval_batch_size, **settings)
        self.folder = Path(root) / "cifar-10-batches-py"
        self.tree = None if tree is None else _tree.ImageTree(Path(tree), CLASSES, 32, Path(root) / "CIFAR10")

    def prepare_data(self) -> None:
        """Fetch the batches unless they are there, or decode the tree unless that is done.

        Raises:
            DataError: If a file is corrupt, no source answers, or the tree is not what it should be.
        """
        if self.tree is not None:
            self.tree.decode()
            return
        sources = {"torchvision's mirror": torchvision_mirrors(TorchvisionCIFAR10, self.folder.name)}
        ensure("CIFAR-10", self.folder, CHECKSUMS, sources, "data.tree=FOLDER with image files")

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 3, 32, 32) bytes."""
        if self.tree is not None:
            train, test = self.tree.load()
        else:
            verify(self.folder, CHECKSUMS)
            train, test = (_cifar.read([self.folder / name for name in names], "labels") for names in (TRAIN, TEST))
        return Samples(*train, 10, MEAN, STD), Samples(*test, 10, MEAN, STD)
