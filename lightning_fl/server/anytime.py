"""The server of mu^2-SGD: clients compute at an average of the models so far.

Ashok Cutkosky. Anytime Online-to-Batch, Optimism and Acceleration. ICML 2019. arXiv:1903.00974.
Tehila Dahan, Kfir Y. Levy. Fault Tolerant ML: Efficient Meta-Aggregation and Synchronous Training. ICML 2024.
arXiv:2405.14759.
"""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from lightning_fl.ranges import Checked, PositiveFloat


class Anytime(Checked, Optimizer):
    """Step from w, and move the parameters x, which clients get and which are evaluated, towards it.

    In round t = 1, 2, ..., from w = x::

        w <- w - eta update
        x <- (1 - c) x + c w,  c = t / (1 + ... + t) = 2 / (t + 1)

    Args:
        params: The model's parameters.
        lr: eta, above 0.

    Raises:
        SettingError: If the rate is out of range.

    >>> x = nn.Parameter(torch.zeros(1))
    >>> server = Anytime([x], lr=1.0)
    >>> for _ in range(3):
    ...     x.grad = -torch.ones(1)
    ...     server.step()
    >>> round(x.item(), 4)  # of w = 1, 2, 3: the second is 1 + 2/3 (2 - 1), then half-way to 3
    2.3333
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: PositiveFloat = 0.1):
        super().__init__(params, {"lr": lr, "rounds": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take the aggregated update that the parameters' ``grad`` holds; see the class."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if any(x.grad is None for x in group["params"]):  # a round for which nobody was drawn
                continue
            group["rounds"] += 1
            for x in group["params"]:
                state = self.state[x]
                if not state:
                    state["w"] = x.clone()
                w = state["w"].sub_(x.grad, alpha=group["lr"])
                x.lerp_(w, 2 / (group["rounds"] + 1))
        return loss
