"""FedAdagrad, FedAdam and FedYogi: a server that steps by an adaptive optimizer.

Sashank J. Reddi, Zachary Charles, Manzil Zaheer, Zachary Garrett, Keith Rush, Jakub Konecny, Sanjiv Kumar, H. Brendan
McMahan. Adaptive Federated Optimization. ICLR 2021. arXiv:2003.00295.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.optim import Optimizer

from lightning_fl.ranges import Checked, PositiveFloat

_Decay = Annotated[float, Ge(0), Lt(1)]


class FedOpt(Checked, Optimizer, ABC):
    """Algorithm 2: scale each coordinate of the aggregated update by a running mean of its squares.

    With Delta = -update, m = 0 and v = tau^2 before the first round::

        m <- beta_1 m + (1 - beta_1) Delta
        v <- see the subclass
        w <- w + eta m / (sqrt(v) + tau)

    Args:
        params: The model's parameters.
        lr: eta, the server's rate, above 0.
        beta_1: Decay of m, in [0, 1).
        beta_2: Decay of v, in [0, 1).
        tau: Degree of adaptivity, above 0, in the unit of an update: the smaller, the more equal all steps are.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        There is no bias correction, unlike in ``torch.optim.Adam``, and v starts at tau^2, the least that the paper's
        theorems allow.  Its Delta is a difference of models; updates here are in units of the clients' rate, so tau is
        the paper's divided by that rate.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: PositiveFloat = 0.1,
        beta_1: _Decay = 0.9,
        beta_2: _Decay = 0.99,
        tau: PositiveFloat = 0.001,
    ):
        super().__init__(params, {"lr": lr, "beta_1": beta_1, "beta_2": beta_2, "tau": tau})

    @abstractmethod
    def second_moment(self, v: Tensor, squares: Tensor, group: dict[str, Any]) -> None:
        """Update v in place.

        Args:
            v: That of the previous round.
            squares: Delta^2.
            group: The settings.
        """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take the aggregated update that the parameters' ``grad`` holds; see the class."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if any(w.grad is None for w in group["params"]):  # a round for which nobody was drawn
                continue
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(w), torch.full_like(w, group["tau"] ** 2)
                m = state["m"].lerp_(w.grad, 1 - group["beta_1"])
                squares = w.grad.square().clamp_(max=torch.finfo(w.dtype).max)  # inf would make v NaN for good
                self.second_moment(state["v"], squares, group)
                w.addcdiv_(m, state["v"].sqrt().add_(group["tau"]), value=-group["lr"])
        return loss


class FedAdam(FedOpt):
    """Average the squares: v <- beta_2 v + (1 - beta_2) Delta^2; see `FedOpt`."""

    def second_moment(self, v: Tensor, squares: Tensor, group: dict[str, Any]) -> None:
        """Update v in place; see the base class."""
        v.lerp_(squares, 1 - group["beta_2"])


class FedYogi(FedOpt):
    """Step towards the squares: v <- v - (1 - beta_2) Delta^2 sign(v - Delta^2); see `FedOpt`."""

    def second_moment(self, v: Tensor, squares: Tensor, group: dict[str, Any]) -> None:
        """Update v in place; see the base class."""
        v.addcmul_(squares, (v - squares).sign(), value=group["beta_2"] - 1)


class FedAdagrad(FedOpt):
    """Sum the squares, v <- v + Delta^2; see `FedOpt`, whose beta_2 it lacks."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 0.1, beta_1: float = 0.0, tau: float = 0.001):
        super().__init__(params, lr, beta_1, beta_2=0.0, tau=tau)

    def second_moment(self, v: Tensor, squares: Tensor, group: dict[str, Any]) -> None:
        """Update v in place; see the base class."""
        v.add_(squares)
