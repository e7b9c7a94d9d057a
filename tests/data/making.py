"""What every data set is made with, and tiny files in the formats of the real ones."""

import hashlib
import struct

from lightning_fl import Federation
from lightning_fl.partition.iid import Iid


def make(kind, **settings):
    """A data module for four clients."""
    common = {
        "partition": Iid(),
        "federation": Federation(4, 0, "supplement", "uniform"),
        "server_samples": 1,
        "seed": 0,
        "partition_seed": 0,
        "eval_batch_size": 4,
    }
    return kind(**(common | settings))


def write(folder, files):
    """Put files into a folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def sha256s(files):
    """Checksums by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def refuse(*args, **kwargs):
    """Stands for a source that is not to be had."""
    raise RuntimeError("Error downloading:\nTried a, got:\n<urlopen error no route>")


def idx(shape, values):
    """A file of Yann LeCun's IDX format: 0, 0, type 8 (bytes), dimensions, big-endian lengths, values."""
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


def idx_files():
    """Two samples of each class in training, one in test; image i is filled with the byte i, its corner with 255."""
    made = {}
    for split, n in [("train", 20), ("t10k", 10)]:
        pixels = [255 if pixel == 0 else i for i in range(n) for pixel in range(784)]
        made[f"{split}-images-idx3-ubyte"] = idx((n, 28, 28), pixels)
        made[f"{split}-labels-idx1-ubyte"] = idx((n,), [(i + 3) % 10 for i in range(n)])
    return made


def cifar_batch(pixels, labels):
    """A CIFAR batch as Python 2 pickled it, opcode by opcode.

    Args:
        pixels: For each image 3,072 bytes: red, green, blue.
        labels: Numbers by entry, such as ``{"labels": [3, 1]}``.
    """

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"  # dtype("u1", 0, 1)
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    array += b"(" + number(1) + number(len(pixels)) + number(3072) + b"\x86" + dtype + b"\x89"
    array += text(b"".join(map(bytes, pixels))) + b"tb"
    entries = text(b"batch_label") + text(b"batch 1") + text(b"data") + array
    for name, values in labels.items():
        entries += text(name.encode()) + b"](" + b"".join(map(number, values)) + b"e"
    return b"\x80\x02}(" + entries + b"u."
