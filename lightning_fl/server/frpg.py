"""The server of FRPG and LFRPG: accelerated steps on the sum of the clients' penalty gradients.

Yanjie Dong, Georgios B. Giannakis, Tianyi Chen, Julian Cheng, Md. Jahangir Hossain, Victor C. M. Leung.
Communication-Efficient Byzantine-Resilient Federated Learning Over Heterogeneous Datasets. 2020. arXiv:2006.09992.
"""

from collections.abc import Callable, Iterable
from math import inf

import torch
from torch import nn
from torch.optim import Optimizer

from lightning_fl.errors import SettingError


def step_sizes(k: int, delta: float, lipschitz: float) -> tuple[float, float]:
    """Compute the server's alpha_{0,k} = (delta / 14) (k + 2)^2 + 3 L / 2 and beta_k = 2 / (k + 2) (eqs. 16, 17).

    Args:
        k: The round, from 1.
        delta: delta_0.
        lipschitz: L_0.

    Returns:
        alpha, an inverse step length, and beta.

    >>> step_sizes(5, delta=2.0, lipschitz=4.0)
    (13.0, 0.2857142857142857)
    """
    return delta / 14 * (k + 2) ** 2 + 1.5 * lipschitz, 2 / (k + 2)


class Frpg(Optimizer):
    """The sequences u, w, v of FRPG's server, for its loss f_0(w) = (delta / 2) ||w||^2.

    The parameters are w_k, as the clients receive it in round k.  A step takes the sum of the uploads g_n as gradient,
    ends round k and begins the next one (eqs. 6c, 6a, 6b)::

        v_k = (alpha_k beta_k v_{k-1} - sum_n g_n) / (delta + alpha_k beta_k)
        u_{k+1} = (1 - beta_{k+1}) w_k + beta_{k+1} v_k
        w_{k+1} = (1 - delta / alpha_{k+1}) u_{k+1}

    Args:
        params: The model's parameters.
        delta: delta_0, at least 0.
        lipschitz: L_0, above 0 and at least delta.

    Raises:
        SettingError: If a setting is out of range; on `step`, if a schedule changes the rate.

    Note:
        The first line is (6c), where delta (v - u) + grad f_0(u) = delta v.  The initial parameters are w_1, what round
        1 broadcasts, from w_0 = v_0 = w_1 / (1 - delta / alpha_1); the paper gives no start.  Evaluation after round k
        sees w_{k+1}.  The paper's L_0 is ambiguous: delta suffices for f_0 but makes the first rounds overshoot, the
        clients' L does not.  ``lr`` reports 1 / alpha_k.
    """

    def __init__(self, params: Iterable[nn.Parameter], delta: float = 0.003, lipschitz: float = 295.0):
        if not (0 <= delta <= lipschitz and 0 < lipschitz < inf):
            raise SettingError(
                f"frpg needs 0 <= delta <= lipschitz and a finite lipschitz > 0, got delta={delta} and "
                f"lipschitz={lipschitz}; delta is the Lipschitz constant of the server's own gradient."
            )
        alpha, _ = step_sizes(1, delta, lipschitz)
        super().__init__(params, {"lr": 1 / alpha, "delta": delta, "lipschitz": lipschitz, "rounds": 0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """End this round and begin the next; see the class."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            if "initial_lr" in group:
                raise SettingError("frpg has step sizes of its own, got a schedule; set schedule=constant.")
            delta, k = group["delta"], group["rounds"] + 1
            alpha, beta = step_sizes(k, delta, group["lipschitz"])
            alpha_next, beta_next = step_sizes(k + 1, delta, group["lipschitz"])
            group |= {"lr": 1 / alpha_next, "rounds": k}
            if any(w.grad is None for w in group["params"]):  # nobody was drawn; the round counts, at clients too
                continue
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state["v"] = w / (1 - delta / alpha)
                v = state["v"].mul_(alpha * beta).sub_(w.grad).div_(delta + alpha * beta)
                u = (1 - beta_next) * w + beta_next * v
                w.copy_((1 - delta / alpha_next) * u)
        return loss
