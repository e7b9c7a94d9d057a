"""Server mixture: mix what a rule makes of the clients with what the server's few samples say.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024.
arXiv:2208.12932, Appendix C.2 (server-augmented majority rules, Figure 6).
"""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, ServerNeed, Wrapper, aggregated
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


def server_mixture(
    update: Float[Tensor, " d"], class_updates: Float[Tensor, "c d"], share: float = 0.25
) -> Float[Tensor, " d"]:
    """Mix an aggregated update with the mean class update, (1 - lambda) mu + (lambda/c) sum_z gamma_z.

    Args:
        update: mu, what a rule made of the clients' updates.
        class_updates: gamma_z, one update per class, from the server's samples.
        share: lambda in [0, 1]; 0 is the rule alone, 1 the server alone.

    Returns:
        The mixed update.

    Raises:
        SettingError: If share is out of range.

    Note:
        The authors' code mixes with one step on all of the server's samples, which is the same where every class has
        equally many and a client uploads one gradient.

    >>> import torch
    >>> server_mixture(torch.tensor([1.0, 1.0]), torch.tensor([[2.0, 0.0], [6.0, 0.0]]), share=0.25)
    tensor([1.7500, 0.7500])
    """
    _check(share)
    return (1 - share) * update + share * class_updates.mean(0)


def _check(share: float) -> None:
    if not 0 <= share <= 1:
        raise SettingError(f"server_mixture needs a share in [0, 1], got {share}.")


class ServerMixture(Wrapper):
    """Mix another rule's update with the server's mean class update; see `server_mixture`.

    Args:
        rule: The rule for the clients.
        share: lambda in [0, 1], the server's share.
    """

    def __init__(self, rule: Aggregator, share: float = 0.25):
        super().__init__(rule)
        _check(share)
        self.share = share

    @property
    def needs_server(self) -> ServerNeed:
        """One update per class; see the base class."""
        return "updates"

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        result = aggregated(self.rule, updates, server)
        weights, trust = (None if w is None else (1 - self.share) * w for w in (result.weights, result.trust))
        mixed = server_mixture(result.update, server.class_updates, self.share)
        return replace(result, answer=mixed, weights=weights, trust=trust)
