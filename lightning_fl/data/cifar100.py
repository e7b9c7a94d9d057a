"""CIFAR-100: 50,000 training and 10,000 test colour images of 32 x 32 pixels, in 100 classes.

Alex Krizhevsky. Learning Multiple Layers of Features from Tiny Images. Technical report, University of Toronto, 2009.

500 training and 100 test images per class.  Memory: 184 MB.  Classes, in the order of the fine labels from 0:
apple, aquarium_fish, baby, bear, beaver, bed, bee, beetle, bicycle, bottle,
bowl, boy, bridge, bus, butterfly, camel, can, castle, caterpillar, cattle,
chair, chimpanzee, clock, cloud, cockroach, couch, crab, crocodile, cup, dinosaur,
dolphin, elephant, flatfish, forest, fox, girl, hamster, house, kangaroo, keyboard,
lamp, lawn_mower, leopard, lion, lizard, lobster, man, maple_tree, motorcycle, mountain,
mouse, mushroom, oak_tree, orange, orchid, otter, palm_tree, pear, pickup_truck, pine_tree,
plain, plate, poppy, porcupine, possum, rabbit, raccoon, ray, road, rocket,
rose, sea, seal, shark, shrew, skunk, skyscraper, snail, snake, spider,
squirrel, streetcar, sunflower, sweet_pepper, table, tank, telephone, television, tiger, tractor,
train, trout, tulip, turtle, wardrobe, whale, willow_tree, wolf, woman, worm.
"""

from pathlib import Path
from typing import Any

from torchvision.datasets import CIFAR100 as TorchvisionCIFAR100  # noqa: N811

from lightning_fl.data import _cifar
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.data.fetch import ensure, torchvision_mirrors, verify
from lightning_fl.samples import Samples

MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
CHECKSUMS = dict(TorchvisionCIFAR100.train_list + TorchvisionCIFAR100.test_list)


class Cifar100(FederatedDataModule):
    """CIFAR-100, from torchvision's mirror; see the base class for the other settings.

    Args:
        root: Folder of data sets; the files are in ``root/cifar-100-python`` as torchvision wants them.
    """

    def __init__(self, root: str = "data", eval_batch_size: int = 500, **settings: Any):
        super().__init__(eval_batch_size=eval_batch_size, **settings)
        self.folder = Path(root) / "cifar-100-python"

    def prepare_data(self) -> None:
        """Fetch the files unless they are there.

        Raises:
            DataError: If a file is corrupt or no source answers.
        """
        sources = {"torchvision's mirror": torchvision_mirrors(TorchvisionCIFAR100, self.folder.name)}
        ensure("CIFAR-100", self.folder, CHECKSUMS, sources, "data=cifar10")

    def load(self) -> tuple[Samples, Samples]:
        """Load both splits as (N, 3, 32, 32) bytes."""
        verify(self.folder, CHECKSUMS)
        train, test = (_cifar.read([self.folder / name], "fine_labels") for name in ("train", "test"))
        return Samples(*train, 100, MEAN, STD), Samples(*test, 100, MEAN, STD)
