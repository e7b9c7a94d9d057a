"""Noise on the server's images, and the 15 common corruptions that make clients differ in features.

Dan Hendrycks, Thomas Dietterich. Benchmarking Neural Network Robustness to Common Corruptions and Perturbations.
ICLR 2019. arXiv:1903.12261.

Every strength is that of CIFAR-10-C, from the authors' ImageNet-C/create_c/make_cifar_c.py (github.com/hendrycks/
robustness, commit ca36008); libraries carry those of ImageNet-C, which leave little of 32 x 32 pixels.

Note:
    Random numbers differ from the authors', who set no seed.  Where their code and paper differ, the code is followed:
    glass blur copies pixels where the paper swaps them, and two of five photographs of frost are the same.  The
    photographs are those of the package torch-uncertainty-assets, two of them compressed once more.
"""

import functools
import hashlib
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from importlib import resources
from io import BytesIO
from math import ceil
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from PIL import Image
from torch import Generator, Tensor

from lightning_fl import seeding
from lightning_fl.errors import DataError, MissingError, SettingError, check_choice, install

SIZE = 32
"""Height and width in pixels of the images whose corruptions have their strengths here."""

_VERSION = 1  # part of a cached file's name; increased when a corruption changes
_AT_ONCE = 1000  # images; 25 MB per copy


def add_noise(pixels: Float[Tensor, "k ch h w"], kind: str, generator: Generator) -> Float[Tensor, "k ch h w"]:
    """Add noise of severity 3 and clip to [0, 1].

    Args:
        pixels: Pixels in [0, 1].
        kind: ``gaussian``: x + N(0, 0.08²).  ``shot``: Poisson(100 x) / 100.  ``impulse``: each value becomes 0 or 1
            with probability 0.015 each.  ``speckle``: x + x N(0, 0.12²).
        generator: Where the noise comes from.

    Raises:
        SettingError: If the kind is unknown.
    """
    check_choice("server_noise", kind, NOISES)
    function, strengths = _NOISES[kind]
    return function(pixels, generator, *strengths[2]).clamp(0, 1)


def corrupt(images: UInt8[Tensor, "k 3 h w"], kind: str, severity: int, seed: int) -> UInt8[Tensor, "k 3 h w"]:
    """Corrupt images in one of the `COMMON` ways; what is random differs from image to image.

    Args:
        images: Images of 32 x 32 pixels.
        kind: One of `COMMON`.
        severity: 1 to 5.
        seed: Seed of the draws.

    Returns:
        New images; fractions of a byte are cut off, as in CIFAR-10-C.

    Raises:
        SettingError: If kind, severity or size is none of these.
        MissingError: If the photographs of frost are not installed.
    """
    check_choice("a corruption", kind, COMMON)
    if severity not in range(1, 6):
        raise SettingError(f"corruption is a severity from 1 to 5, got {severity}.")
    if tuple(images.shape[2:]) != (SIZE, SIZE):
        raise SettingError(
            f"corruption needs images of {SIZE} x {SIZE} pixels, which its strengths are made for, got "
            f"{images.shape[2]} x {images.shape[3]}; set it to null."
        )
    function, strengths = _CORRUPTIONS[kind]
    draw = seeding.generator(seed, kind)
    corrupted = torch.empty_like(images)
    for before, after in zip(images.split(_AT_ONCE), corrupted.split(_AT_ONCE), strict=True):
        after.copy_(function(before.double() / 255, draw, *strengths[severity - 1]).clamp(0, 1) * 255)
    return corrupted


def corrupt_clients(
    inputs: UInt8[Tensor, "N 3 h w"], parts: Sequence[Int64[Tensor, " _"]], severity: int, seed: int, cache: Path
) -> tuple[UInt8[Tensor, "N 3 h w"], list[str]]:
    """Corrupt each client's images in one of the `COMMON` ways, drawn uniformly; two clients may draw the same.

    The images are kept on disk (150 MB for CIFAR-10) for the next call with the same arguments.

    Args:
        inputs: Images of 32 x 32 pixels.
        parts: The numbers of each client's images; no image belongs to two clients.
        severity: 1 to 5.
        seed: Seed of what clients draw and of the corruptions' own draws.
        cache: Folder for corrupted images, created if needed.

    Returns:
        New images, with those of no client unchanged, and what each client drew.

    Raises:
        SettingError: If severity or size is none of these.
        MissingError: If the photographs of frost are not installed.
        DataError: If the images that were kept are damaged.
    """
    kinds = [_drawn_kind(seed, client) for client in range(len(parts))]
    kept = cache / f"corrupted-{_key(inputs, parts, severity, seed)}.npz"
    if kept.exists():
        return _load(kept, inputs), kinds
    if "frost" in kinds:
        _frost_photographs()  # fail now, not halfway, if they are not installed
    start = time.perf_counter()
    corrupted = inputs.clone()
    for client, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
        corrupted[part] = corrupt(inputs[part], kind, severity, seeding.derive_seed(seed, "corrupted images", client))
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".corrupt-") as scratch:
        np.savez(Path(scratch) / kept.name, images=corrupted.numpy())
        os.replace(Path(scratch) / kept.name, kept)
    print(
        f"corrupted {sum(map(len, parts)):,} images of {len(parts)} clients in {time.perf_counter() - start:.0f} s; "
        f"kept in {kept}"
    )
    return corrupted, kinds


def _drawn_kind(seed: int, client: int) -> str:
    draw = seeding.generator(seed, "corruption", client)
    return COMMON[int(torch.randint(len(COMMON), (), generator=draw))]


def _key(inputs: Tensor, parts: Sequence[Tensor], severity: int, seed: int) -> str:
    """Name a cached file by what it depends on."""
    digest = hashlib.sha256(repr((_VERSION, severity, seed, inputs.shape, [len(part) for part in parts])).encode())
    for tensor in (inputs, *parts):
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _load(kept: Path, inputs: Tensor) -> Tensor:
    try:
        with kept.open("rb") as file, np.load(file) as arrays:  # zip files check themselves (CRC-32)
            images = torch.from_numpy(arrays["images"])
        if (images.shape, images.dtype) != (inputs.shape, inputs.dtype):
            raise ValueError(f"holds {images.dtype} of shape {tuple(images.shape)}")
    except (OSError, EOFError, ValueError, TypeError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"{kept} is damaged ({error}); delete it to have the images corrupted again.") from error
    return images


# The corruptions: float pixels (k, 3, h, w) in [0, 1], a generator and a row of strengths in, new pixels out.


def _gaussian_noise(x: Tensor, draw: Generator, sigma: float) -> Tensor:
    return x + sigma * _normal(x, draw)


def _shot_noise(x: Tensor, draw: Generator, photons: float) -> Tensor:
    return torch.poisson(x * photons, draw) / photons


def _impulse_noise(x: Tensor, draw: Generator, amount: float) -> Tensor:
    """Salt and pepper in equal amounts, each channel by itself."""
    hit, salt = torch.rand(2, *x.shape, generator=draw)
    return torch.where(hit < amount, (salt < 0.5).to(x.dtype), x)


def _speckle_noise(x: Tensor, draw: Generator, sigma: float) -> Tensor:
    return x + x * sigma * _normal(x, draw)


def _defocus_blur(x: Tensor, draw: Generator, radius: float, alias: float) -> Tensor:
    """Convolution with a disk, its rim smoothed by a Gaussian of 3 x 3 taps and deviation ``alias``."""
    place = torch.arange(-2, 3)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).to(x.dtype)
    smooth = torch.exp(-torch.tensor([1.0, 0.0, 1.0], dtype=x.dtype) / (2 * alias**2))
    kernel = F.conv2d(disk[None, None], smooth.outer(smooth)[None, None], padding=1)
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    return F.conv2d(padded.flatten(0, 1)[:, None], kernel / kernel.sum()).view_as(x)


def _glass_blur(x: Tensor, draw: Generator, sigma: float, iterations: int) -> Tensor:
    """Every pixel from the third row and column on becomes itself or its neighbour above, to the left, or both."""
    x = (_gaussian(x, sigma) * 255).floor() / 255
    k, _, h, w = x.shape
    for _ in range(iterations):
        up, left = torch.randint(2, (2, k, h - 2, w - 2), generator=draw)
        x[..., 2:, 2:] = _take(x, torch.arange(2, h)[:, None] - up, torch.arange(2, w) - left)
    return _gaussian(x, sigma)


def _motion_blur(x: Tensor, draw: Generator, radius: int, sigma: float) -> Tensor:
    return _streaks(x, draw, radius, sigma, -45, 45)


def _zoom_blur(x: Tensor, draw: Generator, end: float) -> Tensor:
    """Mean of the image and of itself enlarged 1, 1.01, 1.02, ... times."""
    factors = np.arange(1, end, 0.01).tolist()
    return (x + sum(_enlarged(x, factor) for factor in factors)) / (len(factors) + 1)


def _snow(
    x: Tensor,
    draw: Generator,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Whiten, and let flakes fall: noise, enlarged and cut off below a threshold, streaked downwards."""
    layer = _enlarged(mean + deviation * _normal(x[:, :1], draw), zoom)
    layer = torch.where(layer < threshold, 0, layer).clamp(0, 1)
    layer = _streaks((layer * 255).floor() / 255, draw, radius, sigma, -135, -45)
    grey = (x * torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype)[:, None, None]).sum(1, keepdim=True)
    return keep * x + (1 - keep) * torch.maximum(x, grey * 1.5 + 0.5) + layer + layer.rot90(2, (2, 3))


def _frost(x: Tensor, draw: Generator, keep: float, cover: float) -> Tensor:
    """Add a piece of a photograph of frost."""
    photographs = _frost_photographs()
    k, _, h, w = x.shape
    x = keep * x
    for image, number in zip(x, torch.randint(len(photographs), (k,), generator=draw).tolist(), strict=True):
        photograph = photographs[number]
        top = int(torch.randint(photograph.shape[1] - h, (), generator=draw))
        left = int(torch.randint(photograph.shape[2] - w, (), generator=draw))
        image += cover * photograph[:, top : top + h, left : left + w]
    return x


def _fog(x: Tensor, draw: Generator, amount: float, decay: float) -> Tensor:
    """Add a cloud, and scale back to the image's own maximum."""
    top = x.amax((1, 2, 3), keepdim=True)
    return (x + amount * _clouds(x, draw, decay)) * top / (top + amount)


def _brightness(x: Tensor, draw: Generator, amount: float) -> Tensor:
    """Raise the V of HSV, which is the largest channel: the others follow in proportion, and black becomes grey."""
    value = x.amax(1, keepdim=True)
    raised = (value + amount).clamp(max=1)
    return torch.where(x == value, raised, x * (raised / value))


def _contrast(x: Tensor, draw: Generator, factor: float) -> Tensor:
    means = x.mean((2, 3), keepdim=True)
    return (x - means) * factor + means


def _elastic_transform(x: Tensor, draw: Generator, reach: float, sigma: float, jitter: float) -> Tensor:
    """Move three corners of a square, and the image with them affinely; then move every pixel, near ones alike.

    Args:
        x: Pixels.
        draw: Generator.
        reach: Largest shift of a pixel before smoothing; like the others, in widths of the image.
        sigma: Deviation of the Gaussian that smooths the shifts.
        jitter: Largest shift of a corner along each axis.
    """
    k, _, n, _ = x.shape
    low, high = n // 2 - n // 3, n // 2 + n // 3
    corners = torch.tensor([[high, high], [high, low], [low, low]], dtype=x.dtype)
    moved = corners + n * jitter * _uniform((k, 3, 2), draw)
    back = torch.linalg.solve(F.pad(moved, (0, 1), value=1.0), corners.expand(k, 3, 2))  # (x, y, 1) to its source
    places = torch.stack(torch.meshgrid(torch.arange(n), torch.arange(n), indexing="xy"), -1).to(x.dtype)
    source = F.pad(places, (0, 1), value=1.0) @ back[:, None]
    x = F.grid_sample(x, 2 * source / (n - 1) - 1, padding_mode="reflection", align_corners=True)
    if not reach:
        return x
    shifts = n * reach * _gaussian(_uniform((k, 2, n, n), draw), n * sigma, truncate=3, edge="symmetric")
    source = places + shifts.permute(0, 2, 3, 1)
    return F.grid_sample(x, (2 * source + 1) / n - 1, padding_mode="reflection", align_corners=False)


def _pixelate(x: Tensor, draw: Generator, share: float) -> Tensor:
    def change(image: Image.Image) -> Image.Image:
        small = (int(image.width * share), int(image.height * share))
        return image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)

    return _one_by_one(x, change)


def _jpeg_compression(x: Tensor, draw: Generator, quality: int) -> Tensor:
    def change(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _one_by_one(x, change)


_Table = dict[str, tuple[Callable[..., Tensor], Sequence[tuple[float, ...]]]]
"""What each corruption calls, and its strengths at the five severities."""

_NOISES: _Table = {
    "gaussian": (_gaussian_noise, [(0.04,), (0.06,), (0.08,), (0.09,), (0.10,)]),
    "shot": (_shot_noise, [(500.0,), (250.0,), (100.0,), (75.0,), (50.0,)]),
    "impulse": (_impulse_noise, [(0.01,), (0.02,), (0.03,), (0.05,), (0.07,)]),
    "speckle": (_speckle_noise, [(0.06,), (0.1,), (0.12,), (0.16,), (0.2,)]),
}
_CORRUPTIONS: _Table = {
    "gaussian_noise": _NOISES["gaussian"],
    "shot_noise": _NOISES["shot"],
    "impulse_noise": _NOISES["impulse"],
    "defocus_blur": (_defocus_blur, [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)]),
    "glass_blur": (_glass_blur, [(0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)]),  # a reach of 1 pixel in all
    "motion_blur": (_motion_blur, [(6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)]),
    "zoom_blur": (_zoom_blur, [(1.06,), (1.11,), (1.16,), (1.21,), (1.26,)]),
    "snow": (
        _snow,
        [
            (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
        ],
    ),
    "frost": (_frost, [(1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)]),
    "fog": (_fog, [(0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)]),
    "brightness": (_brightness, [(0.05,), (0.1,), (0.15,), (0.2,), (0.3,)]),
    "contrast": (_contrast, [(0.75,), (0.5,), (0.4,), (0.3,), (0.15,)]),
    "elastic_transform": (
        _elastic_transform,
        [(0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)],
    ),
    "pixelate": (_pixelate, [(0.95,), (0.9,), (0.85,), (0.75,), (0.65,)]),
    "jpeg_compression": (_jpeg_compression, [(80,), (65,), (58,), (50,), (40,)]),
}

NOISES = tuple(_NOISES)
"""What `add_noise` knows."""

COMMON = tuple(_CORRUPTIONS)
"""The common corruptions, in the paper's order."""


# What several corruptions share.


def _normal(like: Tensor, draw: Generator) -> Tensor:
    return torch.randn(like.shape, generator=draw, dtype=like.dtype)


def _uniform(shape: Sequence[int], draw: Generator) -> Tensor:
    """Numbers in [-1, 1)."""
    return 2 * torch.rand(*shape, generator=draw, dtype=torch.float64) - 1


def _gaussian(x: Tensor, sigma: float, truncate: int = 4, edge: str = "edge") -> Tensor:
    """Blur rows and columns as scipy.ndimage.gaussian_filter does; the image goes on as numpy.pad's ``edge`` says."""
    n = x.shape[-1]
    radius = int(truncate * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    source = np.pad(np.arange(n), radius, mode=edge)  # type: ignore[call-overload]
    matrix = np.zeros((n, n))
    for i, tap in enumerate(taps / taps.sum()):
        matrix[np.arange(n), source[i : i + n]] += tap
    blur = torch.from_numpy(matrix)
    return blur @ x @ blur.T


def _take(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixels of each image, at places that broadcast to (k, height, width)."""
    return x.permute(0, 2, 3, 1)[torch.arange(len(x))[:, None, None], rows, columns].permute(0, 3, 1, 2)


def _streaks(x: Tensor, draw: Generator, radius: int, sigma: float, lowest: int, highest: int) -> Tensor:
    """ImageMagick's motion blur, in bytes: half a Gaussian along a line of pixels at a random angle (degrees)."""
    k, _, h, w = x.shape
    taps = torch.arange(2 * radius + 1, dtype=x.dtype)
    weights = torch.exp(-((taps / sigma) ** 2) / 2)
    angles = torch.deg2rad(lowest + (highest - lowest) * torch.rand(k, 1, generator=draw, dtype=x.dtype))
    down, right = ((taps * part - 0.5).ceil().long()[:, :, None] for part in (angles.sin(), angles.cos()))
    out = torch.zeros_like(x)
    for i, weight in enumerate((weights / weights.sum()).tolist()):
        rows = (torch.arange(h) + down[:, i]).clamp(0, h - 1)
        columns = (torch.arange(w) + right[:, i]).clamp(0, w - 1)
        out += weight * _take(x, rows[:, :, None], columns[:, None, :])
    return (out * 65535).round().div(257, rounding_mode="floor") / 255  # it rounds to 16 bits and cuts off 8 of them


def _enlarged(x: Tensor, factor: float) -> Tensor:
    """The middle of images, enlarged to their size."""

    def middle(x: Tensor, n: int) -> Tensor:
        start = (x.shape[-1] - n) // 2
        return x[..., start : start + n, start : start + n]

    part = middle(x, ceil(x.shape[-1] / factor))
    large = F.interpolate(part, size=(round(part.shape[-1] * factor),) * 2, mode="bilinear", align_corners=True)
    return middle(large, x.shape[-1])


def _clouds(x: Tensor, draw: Generator, decay: float) -> Tensor:
    """A (k, 1, n, n) map in [0, 1] for each of k images of n x n pixels, n a power of 2: diamond-square on a torus.

    Each step halves the grid: a point between others becomes their mean and a jitter, which shrinks by ``decay``².
    """

    def pairs(grid: Tensor, shift: int, axis: int) -> Tensor:
        return grid + grid.roll(shift, axis)

    def jittered(total: Tensor) -> Tensor:
        return total / 4 + jitter * _uniform(total.shape, draw)

    k, _, n, _ = x.shape
    maps = torch.zeros(k, n, n, dtype=x.dtype)
    step, jitter = n, 1.0
    while step >= 2:
        half = step // 2
        corners, centres = maps[:, ::step, ::step], maps[:, half::step, half::step]
        centres.copy_(jittered(pairs(pairs(corners, -1, 1), -1, 2)))
        maps[:, ::step, half::step] = jittered(pairs(centres, 1, 1) + pairs(corners, -1, 2))
        maps[:, half::step, ::step] = jittered(pairs(centres, 1, 2) + pairs(corners, -1, 1))
        step, jitter = half, jitter / decay**2
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return ((maps - low) / (high - low))[:, None]


@functools.cache
def _frost_photographs() -> tuple[Tensor, ...]:
    """The photographs that frost draws from, each pixel the middle one of 5 x 5 (3, height, width), in [0, 1]."""
    try:
        folder = resources.files("torch_uncertainty_assets") / "frost"
    except ModuleNotFoundError as error:
        raise MissingError(
            f"the corruption frost needs torch-uncertainty-assets, which holds photographs of frost, got none; "
            f"{install('corruptions')}."
        ) from error
    photographs = []
    for number in (1, 2, 2, 3, 4):  # the authors' six have the second twice, and their last is never drawn
        with (folder / f"frost{number}.jpg").open("rb") as file, Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB"))[2::5, 2::5]
        photographs.append(torch.from_numpy(pixels.transpose(2, 0, 1) / 255))
    return tuple(photographs)


def _one_by_one(x: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply a function on PIL's images."""
    before = (x * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
    after = np.empty_like(before)
    for old, new in zip(before, after, strict=True):
        new[...] = np.asarray(change(Image.fromarray(old)))
    return torch.from_numpy(after.transpose(0, 3, 1, 2) / 255)
