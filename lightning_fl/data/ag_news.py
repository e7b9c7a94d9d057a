"""AG-News: 120,000 training and 7,600 test articles, by title and description, in four topics.

Xiang Zhang, Junbo Zhao, Yann LeCun. Character-level Convolutional Networks for Text Classification. NeurIPS 2015.
arXiv:1509.01626.

Classes: 0 World, 1 Sports, 2 Business, 3 Sci/Tech (in the files 1 to 4).  30,000 training and 1,900 test articles each.
Memory: 71 MB at 70 tokens; with GloVe's 400,000 words 80 MB more.
"""

import csv
from pathlib import Path
from typing import Any

from lightning_fl.data._files import lines, need_every_class
from lightning_fl.data._text import Labelled, TextDataModule
from lightning_fl.data.fetch import ensure, verify, web_files
from lightning_fl.errors import DataError

CLASSES = ("World", "Sports", "Business", "Sci/Tech")
CHECKSUMS = {"train.csv": "b1a00f826fdfbd249f79597b59e1dc12", "test.csv": "d52ea96a97a2d943681189a97654912d"}
URL = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv"


class AgNews(TextDataModule):
    """AG-News, from the files that torchtext named, or other files of their format; see the base class for the rest.

    The format: CSV in UTF-8 without a header, ``"class","title","description"``, class 1 to 4.

    Args:
        root: Folder of data sets; the files are in ``root/AG_NEWS``.
        train_csv: None: the official training file.  A path: another one, unverified, such as a subset.
        test_csv: The same for the test file.
    """

    class_names = CLASSES

    def __init__(self, root: str = "data", train_csv: str | None = None, test_csv: str | None = None, **settings: Any):
        super().__init__(**settings)
        self.folder = Path(root) / "AG_NEWS"
        self.train_csv = train_csv
        self.test_csv = test_csv

    @property
    def _official(self) -> dict[str, str]:
        """Checksums of those official files that are wanted."""
        wanted = {"train.csv": self.train_csv is None, "test.csv": self.test_csv is None}
        return {name: checksum for name, checksum in CHECKSUMS.items() if wanted[name]}

    def prepare_data(self) -> None:
        """Fetch the official files that are wanted unless they are there.

        Raises:
            DataError: If a file is corrupt or the source does not answer.
        """
        if self._official:
            sources = {"the repository that torchtext used": web_files({name: f"{URL}/{name}" for name in CHECKSUMS})}
            fallback = "data.train_csv=PATH and data.test_csv=PATH, or data=newsgroups"
            ensure("AG-News", self.folder, self._official, sources, fallback)

    def read(self) -> tuple[Labelled, Labelled]:
        """Read both files: title and description in one text, lower-case, backslashes turned into spaces."""
        verify(self.folder, self._official)
        train, test = (
            _read(Path(given or self.folder / name))
            for name, given in zip(CHECKSUMS, [self.train_csv, self.test_csv], strict=True)
        )
        return train, test


def _read(path: Path) -> Labelled:
    texts, labels = [], []
    reader = csv.reader(lines(path), strict=True)
    try:
        for row in reader:
            if len(row) != 3 or row[0] not in {"1", "2", "3", "4"}:
                raise DataError(
                    f"{path}, line {reader.line_num}: needs class (1 to 4), title and description, and no header, got "
                    f"{len(row)} columns, the first {row[0][:20] if row else ''!r}."
                )
            labels.append(int(row[0]) - 1)
            texts.append(f"{row[1]} {row[2]}".replace("\\", " ").lower())
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}; is the file cut short?") from error
    need_every_class(path, labels, CLASSES)
    return texts, labels
