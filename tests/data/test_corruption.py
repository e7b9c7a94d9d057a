"""Noise on the server's images, and the common corruptions."""

import io
import sys
from importlib import resources
from typing import get_args

import numpy as np
import pytest
import scipy.ndimage
import torch
from PIL import Image

from lightning_fl import DataError, SettingError
from lightning_fl.data import corruption
from lightning_fl.data.base import Noise
from lightning_fl.data.corruption import COMMON, NOISES, add_noise, corrupt, corrupt_clients

RANDOM = (*COMMON[:3], "glass_blur", "motion_blur", "snow", "frost", "fog", "elastic_transform")


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(k, seed=0):
    """Smooth colours with some grain, as bytes (k, 3, 32, 32)."""
    coarse, fine = torch.rand(k, 3, 6, 6, generator=gen(seed)), torch.randn(k, 3, 32, 32, generator=gen(seed + 1))
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
    return ((0.1 + 0.8 * smooth + 0.03 * fine).clamp(0, 1) * 255).byte()


def plain(*colour, k=1):
    """Images of one colour."""
    return torch.tensor(colour, dtype=torch.uint8)[:, None, None].expand(k, 3, 32, 32).clone()


def pil(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def grey(value, n=20_000):
    return torch.full((n // 100, 1, 10, 10), value)


def close(estimate, expected, margin):
    assert abs(float(estimate) - expected) < margin, (float(estimate), expected)


# Noise on the server's images


def test_noise_has_the_stated_spread():
    x = grey(0.5)
    assert get_args(Noise) == NOISES
    noise = {kind: add_noise(x, kind, gen()) - x for kind in NOISES}
    close(noise["gaussian"].std(), 0.08, 0.002)
    close(noise["shot"].std(), 0.05**0.5 / 10**0.5, 0.002)  # Poisson(50) / 100: sqrt(50) / 100 = 0.0707
    close(noise["speckle"].std(), 0.06, 0.002)  # 0.5 * 0.12
    for kind in ("gaussian", "shot", "speckle"):
        close(noise[kind].mean(), 0, 0.003)
    counts = (x + noise["shot"]) * 100
    assert torch.allclose(counts, counts.round(), atol=1e-4)  # photons are whole
    hit = noise["impulse"][noise["impulse"] != 0]
    close(len(hit) / x.numel(), 0.03, 0.005)
    assert set(hit.tolist()) == {-0.5, 0.5}
    close((hit > 0).double().mean(), 0.5, 0.08)


def test_noise_at_the_ends_of_the_range():
    for value in (0.0, 1.0):
        for kind in NOISES:
            noisy = add_noise(grey(value), kind, gen())
            assert noisy.min() >= 0
            assert noisy.max() <= 1
    assert add_noise(grey(0.0), "speckle", gen()).max() == add_noise(grey(0.0), "shot", gen()).max() == 0


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_seeded_and_leaves_its_argument(kind, dtype):
    x = torch.rand(2, 3, 5, 7, generator=gen(), dtype=dtype)
    before = x.clone()
    noisy = add_noise(x, kind, gen(1))
    assert torch.equal(x, before)
    assert (noisy.shape, noisy.dtype) == (x.shape, dtype)
    assert torch.equal(noisy, add_noise(x, kind, gen(1)))
    assert not torch.equal(noisy, add_noise(x, kind, gen(2)))


@pytest.mark.parametrize("kind", NOISES)
def test_noise_differs_from_channel_to_channel(kind):
    x = torch.full((20, 3, 32, 32), 0.5)
    noise = (add_noise(x, kind, gen()) - x).transpose(0, 1).flatten(1)
    assert (torch.corrcoef(noise) - torch.eye(3)).abs().max() < 5 / noise.shape[1] ** 0.5


def test_unknown_noise():
    with pytest.raises(SettingError, match=r"server_noise must be one of gaussian, shot, impulse, speckle, got 'fog'"):
        add_noise(grey(0.5), "fog", gen())


# Every common corruption


def test_the_papers_fifteen_in_its_order():
    assert (
        *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
        *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    ) == COMMON


@pytest.mark.parametrize("kind", COMMON)
def test_corrupted_images_are_new_and_seeded(kind):
    images = pictures(3)
    before = images.clone()
    corrupted = corrupt(images, kind, 3, 7)
    assert torch.equal(images, before)
    assert (corrupted.shape, corrupted.dtype) == (images.shape, torch.uint8)
    assert torch.equal(corrupted, corrupt(images, kind, 3, 7))
    assert not torch.equal(corrupted, corrupt(images, kind, 4 if kind != "motion_blur" else 5, 7))
    assert torch.equal(corrupted, corrupt(images, kind, 3, 8)) == (kind not in RANDOM)
    assert corrupt(images[:0], kind, 3, 7).shape == (0, 3, 32, 32)


@pytest.mark.parametrize("kind", COMMON)
def test_equal_images_are_corrupted_each_in_its_own_way(kind):
    a, b = corrupt(pictures(1).expand(2, -1, -1, -1), kind, 5, 0)
    assert torch.equal(a, b) == (kind not in RANDOM)


def test_many_images_are_corrupted_in_batches_that_share_nothing(monkeypatch):
    images = pictures(1).repeat(5, 1, 1, 1)
    monkeypatch.setattr(corruption, "_AT_ONCE", 2)
    assert len(corrupt(images, "shot_noise", 3, 0).unique(dim=0)) == 5
    assert len(corrupt(images, "contrast", 3, 0).unique(dim=0)) == 1


# What the authors' make_cifar_c.py makes of 200 pictures (with ImageMagick 6.9.11, OpenCV and scikit-image; means of up
# to eight runs): mean change of a byte, and mean difference between a pixel and the next, at the five severities.
AUTHORS = {
    "gaussian_noise": [(8.14, 17.14), (12.19, 21.42), (16.27, 26.26), (18.27, 28.77), (20.31, 31.36)],
    "shot_noise": [(6.34, 15.58), (8.96, 17.99), (14.15, 23.71), (16.32, 26.37), (19.93, 30.84)],
    "impulse_noise": [(1.29, 14.98), (2.58, 17.26), (3.8, 19.41), (6.37, 23.88), (9.02, 28.35)],
    "defocus_blur": [(1.16, 11.45), (2.73, 9.94), (3.94, 9.03), (5.76, 8.84), (6.4, 8.08)],
    "glass_blur": [(9.1, 13.72), (9.15, 13.05), (8.91, 11.56), (14.5, 13.92), (13.94, 12.24)],
    "motion_blur": [(6.08, 9.75), (9.24, 8.91), (11.92, 8.27), (11.94, 8.27), (14.28, 7.7)],
    "zoom_blur": [(7.0, 9.56), (7.95, 8.97), (9.5, 8.66), (11.05, 8.42), (12.85, 8.1)],
    "snow": [(11.12, 14.51), (25.04, 16.87), (26.79, 16.88), (39.97, 16.66), (56.19, 16.25)],
    "frost": [(31.95, 13.33), (47.58, 13.78), (51.08, 13.78), (45.68, 13.37), (42.01, 13.17)],
    "fog": [(8.69, 10.46), (17.03, 8.41), (21.94, 7.37), (26.1, 6.82), (31.61, 6.43)],
    "brightness": [(9.41, 13.35), (19.47, 14.07), (29.42, 14.76), (38.9, 15.32), (54.94, 16.05)],
    "contrast": [(8.63, 9.5), (17.26, 6.33), (20.71, 5.07), (24.16, 3.8), (29.34, 1.9)],
    "elastic_transform": [(19.06, 10.19), (17.09, 9.86), (15.05, 9.29), (13.94, 9.27), (11.15, 9.7)],
    "pixelate": [(1.21, 11.92), (3.17, 11.53), (3.71, 11.12), (5.22, 10.07), (7.32, 9.3)],
    "jpeg_compression": [(7.87, 9.29), (8.96, 8.75), (9.31, 8.64), (9.59, 8.56), (9.99, 8.5)],
}


@pytest.mark.parametrize("kind", COMMON)
def test_corruptions_are_as_strong_as_the_authors(kind):
    images = pictures(200)
    for severity, expected in enumerate(AUTHORS[kind], 1):
        corrupted = corrupt(images, kind, severity, 0).double()
        found = ((corrupted - images).abs().mean().item(), corrupted.diff(dim=3).abs().mean().item())
        assert found == pytest.approx(expected, rel=0.04 if kind in RANDOM else 0.002, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "severity", "message"),
    [
        ("rain", 3, "a corruption must be one of gaussian_noise, .*, jpeg_compression, got 'rain'"),
        ("fog", 0, "corruption is a severity from 1 to 5, got 0"),
        ("fog", 6, "corruption is a severity from 1 to 5, got 6"),
    ],
)
def test_unknown_corruptions(kind, severity, message):
    with pytest.raises(SettingError, match=message):
        corrupt(pictures(1), kind, severity, 0)


def test_images_of_another_size():
    with pytest.raises(SettingError, match=r"needs images of 32 x 32 pixels, .* got 28 x 30; set it to null"):
        corrupt(torch.zeros(1, 3, 28, 30, dtype=torch.uint8), "fog", 3, 0)


# One by one, by hand or against other libraries


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.04), (2, 0.06), (3, 0.08), (4, 0.09), (5, 0.10)])
def test_gaussian_noise(severity, sigma):
    close(corrupt(plain(127, 127, 127, k=8), "gaussian_noise", severity, 0).double().std() / 255, sigma, 0.001)


@pytest.mark.parametrize(("severity", "photons"), [(1, 500), (2, 250), (3, 100), (4, 75), (5, 50)])
def test_shot_noise(severity, photons):
    noisy = corrupt(plain(127, 127, 127, k=8), "shot_noise", severity, 0)
    close(noisy.double().std() / 255, (127 / 255 / photons) ** 0.5, 0.001)


@pytest.mark.parametrize(("severity", "amount"), [(1, 0.01), (2, 0.02), (3, 0.03), (4, 0.05), (5, 0.07)])
def test_impulse_noise(severity, amount):
    noisy = corrupt(plain(127, 127, 127, k=20), "impulse_noise", severity, 0)
    assert set(noisy.unique().tolist()) == {0, 127, 255}
    for value in (0, 255):
        close((noisy == value).double().mean(), amount / 2, 0.1 * amount)


def test_contrast():
    images = plain(51, 51, 200)
    images[0, 0, 16:] = 150  # red: mean 100.5, so 51 and 150 are 49.5 away, and 19.8 at factor 0.4
    corrupted = corrupt(images, "contrast", 3, 0)[0]
    assert corrupted[0, 0, 0] == 80
    assert corrupted[0, 31, 31] == 120
    assert corrupted[1].unique().tolist() in ([50], [51])  # a plain channel stays, but for the cut fraction
    for severity, factor in enumerate([0.75, 0.5, 0.4, 0.3, 0.15], 1):
        red = corrupt(images, "contrast", severity, 0)[0, 0].double()
        close((red[31, 31] - red[0, 0]) / 99, factor, 0.011)


def test_brightness():
    images = plain(0, 0, 0)
    images[0, :, 0, 0] = torch.tensor([100, 50, 0])  # 100 + 0.15 * 255 = 138.25; 50 grows in proportion to 69.1
    images[0, :, 0, 1] = torch.tensor([115, 230, 23])  # 230 stops at 255, which is 1.1087 of it: 127.5, 25.5
    images[0, :, 0, 2] = torch.tensor([255, 3, 0])  # nothing left to raise
    corrupted = corrupt(images, "brightness", 3, 0)[0]
    assert corrupted[:, 0, 0].tolist() == [138, 69, 0]
    assert corrupted[:, 0, 1].tolist() == [127, 255, 25]
    assert corrupted[:, 0, 2].tolist() == [255, 3, 0]
    assert corrupted[:, 5, 5].tolist() == [38, 38, 38]
    assert [int(corrupt(images, "brightness", s, 0)[0, 0, 9, 9]) for s in (1, 2, 3, 5)] == [12, 25, 38, 76]


@pytest.mark.parametrize(("severity", "quality"), [(1, 80), (2, 65), (3, 58), (4, 50), (5, 40)])
def test_jpeg_compression(severity, quality):
    images = pictures(2)
    for image, corrupted in zip(images, corrupt(images, "jpeg_compression", severity, 0), strict=True):
        file = io.BytesIO()
        pil(image).save(file, "JPEG", quality=quality)
        assert np.array_equal(np.asarray(Image.open(file)), np.asarray(pil(corrupted)))


@pytest.mark.parametrize(("severity", "small"), [(1, 30), (2, 28), (3, 27), (4, 24), (5, 20)])
def test_pixelate(severity, small):
    images = pictures(2)
    for image, corrupted in zip(images, corrupt(images, "pixelate", severity, 0), strict=True):
        box = Image.Resampling.BOX
        assert pil(image).resize((small, small), box).resize((32, 32), box).tobytes() == pil(corrupted).tobytes()


def spot(value=255):
    """Black but for one pixel of every channel."""
    images = plain(0, 0, 0)
    images[0, :, 16, 16] = value
    return images


def test_defocus_blur():
    # Severity 4: a disk of 5 pixels, 51 each.  The smoothing takes exp(-12.5) of a neighbour: nothing.
    blurred = corrupt(spot(), "defocus_blur", 4, 0)[0, 0].int()
    plus = {(16, 16), (15, 16), (17, 16), (16, 15), (16, 17)}
    assert all(abs(blurred[place] - 51) <= 1 for place in plus)
    assert blurred.count_nonzero() == 5
    # Severity 5: a disk of 9 pixels, 28.3 each.
    blurred = corrupt(spot(), "defocus_blur", 5, 0)[0, 0]
    assert (blurred[15:18, 15:18] == 28).all()
    assert blurred.count_nonzero() == 9
    # Severity 1: the disk is one pixel, smoothed with 1 : exp(-3.125) = 0.0439 : weights 0.9193, 0.0404.
    blurred = corrupt(spot(), "defocus_blur", 1, 0)[0, 0]
    assert blurred[15:18, 15:18].tolist() == [[0, 9, 0], [9, 215, 9], [0, 9, 0]]  # 215.5, 9.46, 0.4
    # The image goes on beyond its edge without the edge being repeated: the corner's two neighbours count twice.
    images = plain(0, 0, 0)
    images[0, :, 0, 1] = 255
    assert abs(int(corrupt(images, "defocus_blur", 4, 0)[0, 0, 0, 0]) - 102) <= 1


def test_glass_blur_copies_near_pixels():
    images = torch.arange(32)[:, None] * 8 + torch.zeros(200, 3, 32, 32)  # every row has its value
    images[:, 1] = torch.arange(32) * 8  # and every column, in green
    images = images.byte()
    blurred = corrupt(images, "glass_blur", 1, 0).int()  # deviation 0.05: not blurred at all
    up, left = (images.int() - blurred)[:, 0] / 8, (images.int() - blurred)[:, 1] / 8
    for shift in (up, left):
        assert (shift[:, :2] == 0).all()
        assert (shift[:, :, :2] == 0).all()
        inner = shift[:, 2:, 2:]
        assert set(inner.unique().tolist()) == {0, 1}  # a byte less than whole would show here
        close(inner.double().mean(), 0.5, 0.01)
    close((up * left)[:, 2:, 2:].mean(), 0.25, 0.01)


@pytest.mark.parametrize(
    ("angle", "expected"),
    [
        (20, {(2, 0): 14, (2, 1): 43, (3, 2): 84, (3, 3): 105}),
        (-70, {(6, 2): 14, (5, 2): 43, (4, 3): 84, (3, 3): 105}),
    ],
)
def test_streaks_are_those_of_imagemagick(angle, expected):
    # What ImageMagick 6.9.11 makes of a pixel of 250 with convert -motion-blur 2x1.5+ANGLE; rounding to the nearest
    # byte would give 15, a Gaussian of both sides 63 in the middle.
    image = torch.zeros(1, 1, 7, 7, dtype=torch.float64)
    image[0, 0, 3, 3] = 250 / 255
    streak = corruption._streaks(image, gen(), 2, 1.5, angle, angle)[0, 0] * 255
    assert {tuple(place): round(streak[tuple(place)].item()) for place in streak.nonzero().tolist()} == expected


def test_motion_blur_goes_sideways():
    angles = []
    for seed in range(50):
        rows, columns = corrupt(spot(), "motion_blur", 3, seed)[0, 0].nonzero().T
        assert rows.unique().numel() <= columns.unique().numel()
        assert columns.max() == 16
        angles.append((rows.double().mean() - 16) / (16 - columns.double().mean()))
    assert min(angles) < -0.6
    assert max(angles) > 0.6


@pytest.mark.parametrize("factor", [1.0, 1.03, 1.2500000000000002, 1.75, 2.25])
def test_enlarging_is_scipys(factor):
    image = pictures(1).double()[0]
    n = int(np.ceil(32 / factor))
    start = (32 - n) // 2
    large = scipy.ndimage.zoom(image[:, start : start + n, start : start + n].numpy(), (1, factor, factor), order=1)
    start = (large.shape[1] - 32) // 2
    expected = torch.from_numpy(large[:, start : start + 32, start : start + 32])
    torch.testing.assert_close(corruption._enlarged(image[None], factor)[0], expected)


def test_zoom_blur():
    image = pictures(1)
    zooms = [1 + 0.01 * i for i in range(12)]  # severity 2: 1 to 1.11
    mean = (image.double() + sum(corruption._enlarged(image.double(), zoom) for zoom in zooms)) / 13
    assert (corrupt(image, "zoom_blur", 2, 0) - mean.floor()).abs().max() <= 1


def test_the_gaussian_is_scipys():
    image = pictures(1).double()[0]
    for sigma, truncate, edge, mode in [(0.4, 4, "edge", "nearest"), (6.4, 3, "symmetric", "reflect")]:
        expected = scipy.ndimage.gaussian_filter(image.numpy(), (0, sigma, sigma), mode=mode, truncate=truncate)
        found = corruption._gaussian(image, sigma, truncate, edge)
        torch.testing.assert_close(found, torch.from_numpy(expected))


def test_snow():
    # Black, severity 1: whitened by 0.05 * 0.5 * 255 = 6.4, and flakes, which lie as they do upside down.
    black = corrupt(plain(0, 0, 0, k=50), "snow", 1, 0)
    assert black.min() == 6
    assert black.max() > 60
    assert torch.equal(black, black.flip(2, 3))
    assert torch.equal(black[:, 0], black[:, 2])
    # Of noise N(0.1, 0.2²) what is above 0.6, twice: 6.4 + 2 * 255 * (0.1 * 0.0062 + 0.2 * 0.0175) = 8.5.
    close(black.double().mean(), 8.5, 0.7)
    assert (corrupt(plain(255, 255, 255), "snow", 1, 0) == 255).all()
    # Flakes fall: neighbours above each other are more alike.
    black = corrupt(plain(0, 0, 0, k=50), "snow", 3, 0).double()
    assert black.diff(dim=2).abs().mean() < 0.8 * black.diff(dim=3).abs().mean()
    # A grey of 100 is whitened towards 1.5 * 100 + 127.5 = 277.5: 0.9 * 100 + 0.1 * 277.5 = 117.75 where no flake is.
    assert corrupt(plain(100, 100, 100, k=50), "snow", 2, 0).min() == 117


def test_snow_whitens_by_the_luminance():
    # 0.299 * 100 + 0.587 * 200 + 0.114 * 40 = 151.86, so where no flake is 0.1 of 1.5 * 151.86 + 127.5 = 355.29 joins
    # 0.9 of each colour: 125.5, 215.5 and 71.5.  With red and blue exchanged it were 123.9, 213.9 and 69.9.
    assert corrupt(plain(100, 200, 40, k=50), "snow", 2, 0).amin((0, 2, 3)).tolist() == [125, 215, 71]


def test_frost(monkeypatch):
    fake = tuple(torch.full((3, 40, 50), value, dtype=torch.float64) for value in (0, 0.2, 1))
    fake[1][0] = 0.6
    monkeypatch.setattr(corruption, "_frost_photographs", lambda: fake)
    frozen = corrupt(plain(101, 101, 101, k=60), "frost", 3, 0)  # 0.9 * 101 = 90.9, and 0.4 of 0, 51, 153 or 255
    colours = {tuple(image[:, 0, 0].tolist()) for image in frozen}
    assert colours == {(90, 90, 90), (152, 111, 111), (192, 192, 192)}
    assert all((image == image[:, :1, :1]).all() for image in frozen)


def test_frost_takes_pieces_of_photographs():
    photographs = corruption._frost_photographs()
    assert [tuple(photograph.shape) for photograph in photographs] == [
        *[(3, 120, 180), (3, 63, 112), (3, 63, 112), (3, 70, 105), (3, 99, 132)]  # a fifth of 900 x 600, ...
    ]
    frozen = corrupt(plain(0, 0, 0, k=40), "frost", 5, 0).double() / 0.45
    seen = set()
    for piece in frozen:
        for number, photograph in enumerate(photographs):
            windows = (photograph * 255).unfold(1, 32, 1).unfold(2, 32, 1)
            if (windows[:, :, :, ::8, ::8] - piece[:, None, None, ::8, ::8]).abs().amax((0, 3, 4)).min() < 2.3:
                seen.add(number)
                break
        else:
            pytest.fail("no photograph has this piece")
    assert seen == {0, 1, 3, 4}


def test_frost_takes_pieces_from_everywhere_in_a_photograph(monkeypatch):
    rows, columns = torch.meshgrid(torch.arange(40), torch.arange(132), indexing="ij")
    fake = torch.stack([rows, columns, columns]).double() / 255
    monkeypatch.setattr(corruption, "_frost_photographs", lambda: (fake,))
    corners = corrupt(plain(0, 0, 0, k=300), "frost", 5, 0)[:, :2, 0, 0].double() / 0.45
    tops, lefts = corners.T  # uniform on 0 to 7 and on 0 to 99, less up to 2 for the cut fraction
    assert len(tops.unique()) == 4  # 0.45 of 0 to 7 is 0, 0, 0, 1, 1, 2, 2, 3
    close(lefts.mean(), 49.5 - 1, 5 * 100 / 12**0.5 / 300**0.5)
    assert lefts.min() < 5
    assert lefts.max() > 90


def test_photographs_of_frost_are_in_colour():
    folder = resources.files("torch_uncertainty_assets") / "frost"
    for number, photograph in zip((1, 2, 2, 3, 4), corruption._frost_photographs(), strict=True):
        with (folder / f"frost{number}.jpg").open("rb") as file, Image.open(file) as image:
            colours = [image.convert("RGB").getpixel((5 * x + 2, 5 * y + 2)) for x, y in [(0, 0), (100, 30), (50, 60)]]
        assert any(red != blue for red, _, blue in colours)
        found = [photograph[:, y, x] * 255 for x, y in [(0, 0), (100, 30), (50, 60)]]
        torch.testing.assert_close(torch.stack(found), torch.tensor(colours).double())


def test_fog():
    # Severity 2 adds up to 0.5 and divides by 1.5: white becomes 170 where there is none and stays where it is thick.
    white = corrupt(plain(255, 255, 255, k=20), "fog", 2, 0)
    assert {int(image.min()) for image in white} <= {169, 170}
    assert {int(image.max()) for image in white} <= {254, 255}
    assert (corrupt(plain(0, 0, 0), "fog", 2, 0) == 0).all()  # scaled back to the image's own maximum


def test_fog_is_scaled_to_the_maximum_of_all_channels():
    # Severity 2: (x + 127.5 cloud) * 200 / 327.5, for clouds of 0 and 1.
    foggy = corrupt(plain(200, 100, 50, k=20), "fog", 2, 0)
    assert foggy.amin((0, 2, 3)).tolist() == [122, 61, 30]
    assert foggy.amax((0, 2, 3)).tolist() in ([199, 138, 108], [200, 138, 108])


def test_clouds_are_means_of_neighbours_and_jitter():
    n = 8
    like = torch.zeros(3, 3, n, n, dtype=torch.float64)
    smooth = corruption._clouds(like, gen(), 1e6)[:, 0]  # jitter in the first step only
    for cloud in smooth:
        assert (cloud.min(), cloud.max()) == (0, 1)
        for step in (4, 2):
            half = step // 2
            for i in range(0, n, half):
                for j in range(0, n, half):
                    odd = (i // half % 2, j // half % 2)
                    if odd == (0, 0):
                        continue
                    places = [(-half, -half), (-half, half), (half, -half), (half, half)]
                    if odd != (1, 1):
                        places = [(-half, 0), (half, 0), (0, -half), (0, half)]
                    mean = sum(cloud[(i + a) % n, (j + b) % n] for a, b in places) / 4
                    close(cloud[i, j], mean, 1e-6)
    rough, calm = (corruption._clouds(like, gen(), decay)[:, 0] for decay in (1.75, 3.0))
    assert rough.diff(dim=1).abs().mean() > calm.diff(dim=1).abs().mean()


def ramps(k):
    """Images that hold their own coordinates: x in the first channel, y in the second."""
    place = torch.arange(32, dtype=torch.float64)
    return torch.stack([place.expand(32, 32), place[:, None].expand(32, 32)]).expand(k, 2, 32, 32)


def test_elastic_transform_without_strength_changes_nothing():
    images = pictures(2).double()
    torch.testing.assert_close(corruption._elastic_transform(images, gen(), 0.0, 0.0, 0.0), images)


def test_elastic_transform_moves_three_corners():
    sources = corruption._elastic_transform(ramps(30), gen(), 0.0, 0.0, 0.08)
    moved = []
    for source in sources:
        # Where each of some middle pixels came from gives the affine map; its inverse says where the corners went.
        places = [(x, y) for x in (12, 16, 20) for y in (12, 16, 20)]
        design = np.array([(x, y, 1) for x, y in places])
        back = np.linalg.lstsq(design, np.array([source[:, y, x].tolist() for x, y in places]))[0]
        np.testing.assert_allclose(design @ back, [source[:, y, x].tolist() for x, y in places], atol=1e-9)
        corners = np.array([[26, 26], [26, 6], [6, 6]])
        moved.append((corners - back[2]) @ np.linalg.inv(back[:2]) - corners)
    assert np.abs(moved).max() <= 0.08 * 32 + 1e-9
    close(np.std(moved), 0.08 * 32 / 3**0.5, 0.2)  # uniform


def test_elastic_transform_goes_on_beyond_the_edge_as_in_a_mirror():
    images, sources = pictures(8).double(), corruption._elastic_transform(ramps(8), gen(), 0.0, 0.0, 0.08)
    design = np.array([(x, y, 1) for x in (12, 16, 20) for y in (12, 16, 20)])
    places = np.array([(x, y, 1) for y in range(32) for x in range(32)])
    beyond = 0
    for image, source, moved in zip(
        images, sources, corruption._elastic_transform(images, gen(), 0.0, 0.0, 0.08), strict=True
    ):
        back = np.linalg.lstsq(design, np.array([source[:, y, x].tolist() for x, y, _ in design]))[0]
        x, y = (places @ back).T
        beyond += ((x < -1) | (y < -1)).sum()
        for before, after in zip(image.numpy(), moved.numpy(), strict=True):
            expected = scipy.ndimage.map_coordinates(before, [y, x], order=1, mode="mirror")
            np.testing.assert_allclose(after.ravel(), expected, atol=1e-6)
    assert beyond > 100


def test_elastic_transform_moves_near_pixels_alike():
    moved = corruption._elastic_transform(ramps(30), gen(), 0.1, 0.04, 0.0)
    shifts = (moved - ramps(30))[..., 4:-4, 4:-4]
    # Uniform in +-3.2 (deviation 1.85), smoothed with deviation 1.28 a side: 1.85 / (2 sqrt(pi) 1.28) = 0.41.
    close(shifts.std(), 0.41, 0.03)
    assert shifts.diff(dim=3).std() < 0.7 * shifts.std()


# Clients


@pytest.fixture
def world():
    """Images, four clients with some of them, and two that no client has."""
    return pictures(20), [torch.tensor(part) for part in ([0, 5, 7], [1], [2, 3, 4, 19], list(range(8, 18)))]


def test_each_client_has_one_corruption(world, tmp_path, capsys):
    inputs, parts = world
    before = inputs.clone()
    corrupted, kinds = corrupt_clients(inputs, parts, 3, 0, tmp_path / "new" / "folder")
    assert torch.equal(inputs, before)
    assert (corrupted.shape, corrupted.dtype) == (inputs.shape, torch.uint8)
    assert torch.equal(corrupted[[6, 18]], inputs[[6, 18]])  # nobody's
    assert len(kinds) == 4
    assert set(kinds) <= set(COMMON)
    for part, kind in zip(parts, kinds, strict=True):
        assert all(not torch.equal(corrupted[i], inputs[i]) for i in part)
        if kind not in RANDOM:
            assert torch.equal(corrupted[part], corrupt(inputs[part], kind, 3, 0))
    (kept,) = (tmp_path / "new" / "folder").iterdir()
    assert capsys.readouterr().out == f"corrupted 18 images of 4 clients in 0 s; kept in {kept}\n"


def test_clients_draw_by_themselves(world, tmp_path):
    inputs, parts = world
    all_of_them, kinds = corrupt_clients(inputs, parts, 3, 0, tmp_path)
    some, fewer = corrupt_clients(inputs, parts[:2], 3, 0, tmp_path)
    assert fewer == kinds[:2]
    assert torch.equal(some[parts[0]], all_of_them[parts[0]])
    # Two clients of one kind do not share what is random.
    twins = pictures(1).repeat(60, 1, 1, 1)
    corrupted, kinds = corrupt_clients(twins, list(torch.arange(60)[:, None]), 3, 0, tmp_path)
    noisy = [i for i, kind in enumerate(kinds) if kind in RANDOM and kind != "motion_blur"]  # few lines of pixels
    assert len(corrupted[noisy].unique(dim=0)) == len(noisy) > 20


def test_another_seed_draws_other_kinds_and_other_noise(world, tmp_path, monkeypatch):
    inputs, parts = pictures(30), list(torch.arange(30)[:, None])
    drawn = [corrupt_clients(inputs, parts, 3, seed, tmp_path)[1] for seed in (0, 1)]
    assert sum(a == b for a, b in zip(*drawn, strict=True)) < 10  # 2 of 30 on average
    monkeypatch.setattr(corruption, "_drawn_kind", lambda *_: "gaussian_noise")
    inputs, parts = world
    ours, theirs = (corrupt_clients(inputs, parts, 3, seed, tmp_path)[0] for seed in (0, 1))
    assert all(not torch.equal(ours[i], theirs[i]) for part in parts for i in part)


def test_every_kind_is_drawn_equally_often(tmp_path, monkeypatch):
    monkeypatch.setattr(corruption, "corrupt", lambda images, *_: images)
    _, kinds = corrupt_clients(pictures(1), [torch.tensor([], dtype=torch.int64)] * 3000, 3, 0, tmp_path)
    counts = [kinds.count(kind) for kind in COMMON]
    assert min(counts) > 140
    assert max(counts) < 260


def never(*_):
    raise AssertionError("computed again")


def test_the_second_call_reads_what_the_first_kept(world, tmp_path, monkeypatch, capsys):
    first, kinds = corrupt_clients(*world, 3, 0, tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(corruption, "corrupt", never)
    second, again = corrupt_clients(*world, 3, 0, tmp_path)
    assert torch.equal(first, second)
    assert kinds == again
    assert capsys.readouterr().out == ""
    second[0] = 0  # is the caller's own
    inputs, parts = world
    for changed in [
        (inputs.flip(0), parts, 3, 0),
        (inputs, parts[::-1], 3, 0),
        (inputs, [torch.cat(parts[:2]), *parts[2:]], 3, 0),
        (inputs, parts, 4, 0),
        (inputs, parts, 3, 1),
    ]:
        with pytest.raises(AssertionError, match="computed again"):
            corrupt_clients(*changed, tmp_path)


def damage(content):
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    archive = io.BytesIO()
    np.savez(archive, images=np.zeros((20, 3, 32, 31), np.uint8))
    other = io.BytesIO()
    np.savez(other, pictures=np.zeros((20, 3, 32, 32), np.uint8))
    method = bytearray(content)
    method[content.index(b"PK\x01\x02") + 10] = 99  # a way to compress that does not exist
    return {
        "cut": content[: len(content) // 2],
        "empty": b"",
        "a bit": content[:9000] + bytes([content[9000] ^ 1]) + content[9001:],
        "method": bytes(method),
        "text": b"not found",
        "one array": array.getvalue(),
        "another shape": archive.getvalue(),
        "another name": other.getvalue(),
    }


@pytest.mark.parametrize("how", damage(b"PK\x01\x02" + bytes(20_000)))
def test_a_damaged_file_is_named(how, world, tmp_path):
    corrupt_clients(*world, 3, 0, tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(damage(kept.read_bytes())[how])
    with pytest.raises(DataError, match=rf"{kept.name} is damaged \(.*delete it to have the images corrupted again"):
        corrupt_clients(*world, 3, 0, tmp_path)


@pytest.mark.parametrize("where", ["corrupt", "os.replace"])
def test_nothing_is_kept_of_a_call_that_fails(where, world, tmp_path, monkeypatch):
    owner, name = (corruption.os, "replace") if "." in where else (corruption, "corrupt")
    monkeypatch.setattr(owner, name, never)
    with pytest.raises(AssertionError):
        corrupt_clients(*world, 3, 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_severity_that_does_not_exist(world, tmp_path):
    with pytest.raises(SettingError, match=r"corruption is a severity from 1 to 5, got 9"):
        corrupt_clients(*world, 9, 0, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_frost_without_its_photographs(world, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_uncertainty_assets", None)
    corruption._frost_photographs.cache_clear()
    message = r'needs torch-uncertainty-assets, .*, got none; pip install "lightning-fl\[corruptions\]"'
    with pytest.raises(SettingError, match=message):
        corrupt(pictures(1), "frost", 3, 0)
    corrupt(pictures(1), "fog", 3, 0)  # is not missed where it is not needed
    monkeypatch.setattr(corruption, "_drawn_kind", lambda _, client: "frost" if client == 3 else "fog")
    monkeypatch.setattr(corruption, "corrupt", never)  # and is missed before the work
    with pytest.raises(SettingError, match=message):
        corrupt_clients(*world, 3, 0, tmp_path)
    assert list(tmp_path.iterdir()) == []
