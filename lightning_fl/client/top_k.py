"""Top-k: clients send their largest entries alone.

Dan Alistarh, Torsten Hoefler, Mikael Johansson, Sarit Khirirat, Nikola Konstantinov, Cedric Renggli. The Convergence of
Sparsified Gradient Methods. NeurIPS 2018. arXiv:1809.10505.
"""

from typing import Annotated

import torch  # noqa: F401, of the example
from annotated_types import Gt, Le
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.client.base import Client
from lightning_fl.client.wrapper import Compressor, kept
from lightning_fl.updates.ordered import largest_entries


class TopK(Compressor):
    """Send the k = max(1, floor(ratio d)) entries of largest size, of equal ones the first; see `Compressor`.

    Each costs 32 bits and the ceil(log2 d) bits of its place.

    Args:
        client: The client to wrap.
        ratio: Share of the entries that are sent, 0 < ratio <= 1.
        feedback: Whether what is left out is sent later.

    Note:
        What attackers forge is cut to its k largest entries, too.

    >>> from lightning_fl.client.gradient import Gradient
    >>> TopK(Gradient(), ratio=0.5).compress(torch.tensor([1.0, -3.0, 0.5, -2.0]))
    tensor([ 0., -3.,  0., -2.])
    """

    def __init__(self, client: Client, ratio: Annotated[float, Gt(0), Le(1)] = 0.1, feedback: bool = True):
        super().__init__(client, feedback)
        self.ratio = ratio

    @override
    def compress(self, row: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        return row.where(largest_entries(row, kept(self.ratio, len(row))), 0)

    @override
    def bits_up(self, d: int) -> int:
        return kept(self.ratio, d) * (32 + (d - 1).bit_length())
