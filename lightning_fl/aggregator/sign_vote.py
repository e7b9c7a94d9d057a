"""signSGD with majority vote: in every coordinate, the sign that most clients send.

Jeremy Bernstein, Yu-Xiang Wang, Kamyar Azizzadenesheli, Anima Anandkumar. signSGD: Compressed Optimisation for
Non-Convex Problems. ICML 2018. arXiv:1802.04434.  Jeremy Bernstein, Jiawei Zhao, Kamyar Azizzadenesheli, Anima
Anandkumar. signSGD with Majority Vote is Communication Efficient and Fault Tolerant. ICLR 2019. arXiv:1810.05291.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_only
from lightning_fl.updates.updates import Updates

# Entries whose signs are added up at a time.
_ENTRIES_CPU, _ENTRIES_GPU = 2**19, 2**26


def _vote(updates: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    rows = finite_only(updates, "sign_vote")
    width = max(1, (_ENTRIES_CPU if rows.device.type == "cpu" else _ENTRIES_GPU) // len(rows))
    return torch.cat([block.sign().sum(0).sign() for block in rows.split(width, dim=1)])


class SignVote(Aggregator):
    """Take the majority's sign in every coordinate, sign(sum_i sign(x_ik)).

    It is -1, 0 or 1; 0 on a tie, and sign(0) = 0.

    Note:
        Every coordinate moves by the learning rate alone: rates that fit gradients are far too large (the authors take
        1e-4).  An update with NaN or inf abstains.  Data weights play no part, as in the papers.

    >>> import torch
    >>> SignVote()(torch.tensor([[1.0, -2.0, 3.0], [90.0, -0.1, -4.0], [-5.0, 0.0, 0.0]]))
    tensor([ 1., -1.,  0.])
    """

    moves_with = ()

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        return Aggregation(updates.by_column(_vote, mark_broken=True))
