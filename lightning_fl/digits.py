"""Inner products to nearly float64's accuracy from float32 products, for devices that are slow in float64.

Consumer GPUs compute a 32nd or a 64th as fast in float64 as in float32.  A float32 matrix product, however, is exact
where factors are small integers: here each row is divided by a power of 2, so that its entries are at most 1, and cut
into three digits of at most 256 in absolute value.  Products of digits add up to at most 2^24 over 256 columns, in
whatever order and also in TF32; what these sums add up to is left to float64.  So an inner product is exactly that of
rows rounded to 26 bits below their largest entry, equal rows have a distance of exactly 0, and the numbers are the same
on every device.
"""

from functools import cache
from itertools import product

import torch
from jaxtyping import Float64
from torch import Tensor

# Base of the digits and how many; columns over which sums of their products are exact in float32.
_BASE, _DIGITS, _COLUMNS = 512.0, 3, 256
# Rows of the Gram matrix at a time: at least this many, in at most this many parts; float32 sums of products at a time.
_ROWS, _PARTS, _SUMS = 128, 64, 2**26
# Compute capabilities of NVIDIA's GPUs that are at least half as fast in float64.
_FAST = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


@cache
def slow_in_float64(device: torch.device) -> bool:
    """Whether a device computes many times slower in float64 than in float32."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) not in _FAST


def add_products(gram: Float64[Tensor, "n n"], columns: Float64[Tensor, "n k"]) -> None:
    """Add some columns' inner products, on and below the diagonal.

    A row with NaN or inf makes its row and column of the sum NaN, nothing else.

    Args:
        gram: The sum, which is written to.
        columns: Some columns of n rows.

    >>> gram = torch.zeros(2, 2, dtype=torch.float64)
    >>> add_products(gram, torch.tensor([[3.0, 4.0], [1.0, 0.0]]).double())
    >>> gram.tril()
    tensor([[25.,  0.],
            [ 3.,  1.]], dtype=torch.float64)
    """
    largest = columns.abs().amax(1)
    one, exponent = torch.ones_like(largest), torch.frexp(largest).exponent
    scale = torch.ldexp(one, exponent).where(largest.isfinite(), torch.nan)  # above the largest, at most twice it
    digits = _digits((columns * torch.ldexp(one, -exponent)[:, None]).nan_to_num_(0, 0, 0).float())
    n, size = len(gram), max(_ROWS, len(gram) // _PARTS)
    for i in range(0, n, size):
        rows, known = slice(i, min(i + size, n)), slice(0, min(i + size, n))
        found = _products(digits[:, :, rows], digits[:, :, known])
        gram[rows, known] += found.mul_(scale[rows, None]).mul_(scale[known])


def _digits(rows: Tensor) -> Tensor:
    """Cut entries in [-1, 1] into digits, (blocks of columns, digits, n, columns of the block)."""
    blocks = -(-rows.shape[1] // _COLUMNS)
    found = rows.new_zeros(_DIGITS, len(rows), blocks * _COLUMNS)
    rest, base = rows, _BASE / 2  # the first digit has a sign of its own
    for digit in found:
        scaled = rest * base
        digit[:, : rows.shape[1]] = scaled.round()
        rest, base = scaled - scaled.round(), _BASE  # exact
    return found.view(_DIGITS, len(rows), blocks, _COLUMNS).permute(2, 0, 1, 3).contiguous()


def _products(left: Tensor, right: Tensor) -> Tensor:
    """The inner products of what the digits stand for."""
    m, n = left.shape[2], right.shape[2]
    sums = left.new_zeros(_DIGITS * m, _DIGITS * n, dtype=torch.float64)
    most = max(1, _SUMS // sums.numel())
    for a, b in zip(left.flatten(1, 2).split(most), right.flatten(1, 2).split(most), strict=True):
        sums += (a @ b.transpose(1, 2)).sum(0, dtype=torch.float64)
    places = 2 / _BASE ** torch.arange(1, _DIGITS + 1, dtype=torch.float64, device=left.device)
    by_digits = sums.view(_DIGITS, m, _DIGITS, n)
    found = torch.zeros_like(by_digits[0, :, 0])
    for a, b in product(range(_DIGITS), repeat=2):
        found += places[a] * places[b] * by_digits[a, :, b]
    return found
