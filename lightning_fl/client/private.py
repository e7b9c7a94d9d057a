"""Differential privacy at the client: what is sent is clipped, and noise is added.

H. Brendan McMahan, Daniel Ramage, Kunal Talwar, Li Zhang. Learning Differentially Private Recurrent Language Models.
ICLR 2018. arXiv:1710.06963.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from math import inf, sqrt

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.client.base import Client
from lightning_fl.client.wrapper import Wrapper
from lightning_fl.errors import MissingError, install
from lightning_fl.ranges import Fraction, NonNegativeFloat, PositiveFloat
from lightning_fl.round import Round


class Private(Wrapper):
    """Send x_i min(1, C / ||x_i||) + N(0, (sigma C)^2 I).

    What one client's updates say of all that it holds is protected, from a server that sees each upload, and so from
    whoever sees a model: what a rule makes of uploads costs nothing more.  For epsilon, neighbours are a run and that
    in which the client sends noise around 0; T uploads are one with noise sigma / sqrt(T), T the rounds in which the
    client takes part.  A server that computes on clients' samples, or whose rate follows their losses, is refused.

    Args:
        client: The client to wrap.
        clip: C, the longest update, above 0, in units of updates.
        noise_multiplier: sigma, at least 0; 0 adds no noise, and epsilon is infinite.
        delta: That of the epsilon in a run's summary, in (0, 1), such as 1e-5; computed by dp-accounting.  None: none
            is told.

    Raises:
        SettingError: If a setting is out of range, or delta is given and dp-accounting is not installed.

    Note:
        Where a client may be replaced by another one, sensitivity is 2 C: epsilon is that of sigma / 2.  That the
        server draws participants gives nothing, as it knows who has sent what.  A trusted server that publishes nothing
        but means of k uploads would have the epsilon of sigma sqrt(k); for other rules there is no such statement.
        Numbers of samples, which data weights tell, and validation samples are not covered.
        Noise has the length sqrt(d) sigma C.  Attackers who train are clipped and add noise as they are told; what
        others forge stays as it is.
    """

    def __init__(
        self,
        client: Client,
        clip: PositiveFloat = 1.0,
        noise_multiplier: NonNegativeFloat = 1.0,
        delta: Fraction | None = None,
    ):
        super().__init__(client)
        if delta is not None and find_spec("dp_accounting") is None:
            raise MissingError(f"private needs dp-accounting for an epsilon at delta, got none; {install('privacy')}.")
        self.clip = clip
        self.noise_multiplier = noise_multiplier
        self.delta = delta

    @override
    def send(self, rows: Float[Tensor, "h d"], ids: Sequence[int], this_round: Round) -> None:
        for row, client in zip(rows, ids, strict=True):
            norm = torch.linalg.vector_norm(row, dtype=torch.float64)
            row.mul_((self.clip / norm.clamp(min=self.clip)).to(row))
            if self.noise_multiplier:
                noise = torch.randn(len(row), generator=this_round.generator("dp", client), dtype=row.dtype)
                row.add_(noise.to(row.device), alpha=self.noise_multiplier * self.clip)

    @override
    def bits_up(self, d: int) -> int:
        return 32 * d  # noise fills what was left out

    @override
    def privacy(self, rounds: int) -> dict[str, float] | None:
        if self.delta is None:
            return None
        epsilon = inf
        if self.noise_multiplier:
            from dp_accounting import get_epsilon_gaussian

            epsilon = float(get_epsilon_gaussian(self.noise_multiplier / sqrt(max(rounds, 1)), self.delta))
        return {"epsilon": epsilon, "delta": self.delta, "uploads": rounds}
