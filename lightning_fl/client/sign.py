"""Signs: clients send the sign of every entry, and one length.

Sai Praneeth Karimireddy, Quentin Rebjock, Sebastian U. Stich, Martin Jaggi. Error Feedback Fixes SignSGD and other
Gradient Compression Schemes. ICML 2019. arXiv:1901.09847.
"""

from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.client.wrapper import Compressor


class Sign(Compressor):
    """Send (||x||_1 / d) sign(x), with sign(0) = 1: a bit per entry and 32 more; see `Compressor`.

    Args:
        client: The client to wrap.
        feedback: Whether what is left out is sent later.

    Note:
        Of what attackers forge the same is read.

    >>> import torch
    >>> from lightning_fl.client.gradient import Gradient
    >>> Sign(Gradient()).compress(torch.tensor([1.0, -3.0, 0.0, -2.0]))
    tensor([ 1.5000, -1.5000,  1.5000, -1.5000])
    """

    @override
    def compress(self, row: Float[Tensor, " d"]) -> Float[Tensor, " d"]:
        return (1 - 2 * (row < 0).to(row)) * row.abs().mean()

    @override
    def bits_up(self, d: int) -> int:
        return d + 32
