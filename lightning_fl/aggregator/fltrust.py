"""FLTrust: trust a client as far as its update points where the server's own points.

Xiaoyu Cao, Minghong Fang, Jia Liu, Neil Zhenqiang Gong. FLTrust: Byzantine-robust Federated Learning via Trust
Bootstrapping. NDSS 2021. arXiv:2012.13995.
"""

import torch
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.errors import DivergedError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.finite import finite_rows
from lightning_fl.updates.updates import Updates

# A row this much shorter than the server's counts as zero: stretching it would overflow float32.
_SHORTEST = 1e-30


def fltrust_weights(gram: Float64[Tensor, "m m"]) -> Float64[Tensor, " n"]:
    """Weigh n client rows from their inner products, the server's row last; see `Fltrust`.

    Args:
        gram: Inner products of n client rows followed by the server's.

    Returns:
        Factor of each client row in the update; they need not sum to 1.

    Raises:
        DivergedError: If the server's row, or every client's, is not finite.
    """
    n = len(gram) - 1
    if not gram[n, n].isfinite():
        raise DivergedError("fltrust needs a finite server update, got NaN or inf; the model may have diverged.")
    rows = finite_rows(gram.diagonal()[:n], "fltrust")
    lengths, server_length = gram.diagonal()[rows].sqrt(), gram[n, n].sqrt()
    usable = (lengths > _SHORTEST * server_length) & (server_length > 0)
    trust = torch.where(usable, gram[rows, n] / (lengths * server_length), 0).clamp(min=0)
    weights = gram.new_zeros(n)
    if trust.any():
        weights[rows] = torch.where(usable, trust / trust.sum() * server_length / lengths, 0)
    return weights


class Fltrust(Aggregator):
    """Average the updates at the server's length by trust, sum_i TS_i ||g_0|| x_i / ||x_i|| / sum_i TS_i.

    g_0 is the server's update, from its samples by the clients' process; TS_i = ReLU(cos(x_i, g_0)) is the trust
    score.  The result is never longer than g_0.  The rule's weights are the factors of the updates as sent, rescaling
    included; its trust is TS_i / sum TS_j.

    Note:
        If no client is trusted, sum TS_i = 0, the formula has no value; here the update is zero and the model stays
        put.  A zero row, or one with NaN or inf, has no direction and trust 0.  The BOBA paper's text leaves the
        rescaling to ||g_0|| out; its results need it.

    The cosines are 1, 0.6 and -1:

    >>> server_update = torch.tensor([2.0, 0.0])
    >>> Fltrust()(torch.tensor([[5.0, 0.0], [3.0, 4.0], [-9.0, 0.0]]), server_update)
    tensor([1.7000, 0.6000])
    """

    needs_server = "updates"
    moves_with = ("scale", "rotation")

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        gram = updates.gram_with(server.update[None])
        weights = fltrust_weights(gram)
        shares = torch.where(weights > 0, weights * gram.diagonal()[:-1].sqrt(), 0)
        return Aggregation(updates.combination(weights), weights, trust=shares / (shares.sum() or 1))
