"""FedProx: local steps held near the global model.

Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith. Federated Optimization in
Heterogeneous Networks. MLSys 2020. arXiv:1812.06127.
"""

from typing import Any

from torch import Tensor, nn

from lightning_fl.client.local_sgd import LocalSgd
from lightning_fl.ranges import NonNegativeFloat
from lightning_fl.samples import ClientBatch


class FedProx(LocalSgd):
    """Take K local steps on L_i(w) + (mu / 2) ||w - w_0||^2 and upload the difference; see `LocalSgd`.

    Args:
        mu: Strength of the proximal term, at least 0; 0 is FedAvg.
        settings: See `LocalSgd`.

    Raises:
        SettingError: If a setting is out of range.
    """

    moves_statistics = False

    def __init__(self, mu: NonNegativeFloat = 0.01, **settings: Any):
        super().__init__(**settings)
        self.mu = mu

    def local_gradients(self, model: nn.Module, batch: ClientBatch, start: Tensor, at: Tensor, out: Tensor) -> Tensor:
        """Compute the gradients with the proximal term's; see the base class."""
        gradients = super().local_gradients(model, batch, start, at, out)
        return gradients.add_(at - start, alpha=self.mu)
