"""A point drawn to the samples by springs: strongly convex, with every constant of the papers' theorems known."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lightning_fl.errors import SettingError
from lightning_fl.ranges import Checked, PositiveFloat, PositiveInt


class Quadratic(Checked, nn.Module):
    """The parameter w, from zero, with the loss (w - x)^T A (w - x) / 2 of a sample x.

    A is diagonal, evenly spaced from mu to L, so each client's loss is mu-strongly convex and L-smooth, its minimiser
    is the mean of its samples, and that of the whole loss is the mean of all samples.  On ``data=quadratic``, whose
    samples have unit variance around their class's mean, a sample's gradient has the variance sigma^2 = trace(A^2)
    around its class's.

    Args:
        n_classes: d, length of w and of a sample, and number of the data's classes.
        mu: Smallest curvature, above 0.
        lipschitz: L, largest curvature, at least mu.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        The output is w - x, about which accuracy and recall say nothing: look at the loss.

    >>> model = Quadratic(2, mu=1.0, lipschitz=3.0)
    >>> model.sample_losses(model(torch.tensor([[2.0, 4.0]])), torch.tensor([0]))  # (1 * 2^2 + 3 * 4^2) / 2
    tensor([26.], grad_fn=<DivBackward0>)
    """

    curvatures: Tensor

    def __init__(self, n_classes: PositiveInt = 10, mu: PositiveFloat = 1.0, lipschitz: PositiveFloat = 4.0):
        super().__init__()
        if mu > lipschitz:
            raise SettingError(f"quadratic needs mu <= lipschitz, got {mu} and {lipschitz}.")
        self.input_shape = (n_classes,)
        self.w = nn.Parameter(torch.zeros(n_classes))
        self.register_buffer("curvatures", torch.linspace(mu, lipschitz, n_classes), persistent=False)

    def forward(self, x: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        """Give w - x."""
        return self.w - x

    def sample_losses(self, outputs: Float[Tensor, "batch d"], targets: Tensor) -> Float[Tensor, " batch"]:
        """Compute (w - x)^T A (w - x) / 2 from w - x."""
        return outputs.square() @ self.curvatures / 2
