"""Server mixture: mix what a rule makes of the clients with what the server's few samples say.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024.
arXiv:2208.12932, Appendix C.2 (server-augmented majority rules, Figure 6).
"""

from dataclasses import replace

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.ranges import Share
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


class ServerMixture(Wrapper):
    """Mix an aggregated update with the mean class update, (1 - lambda) mu + (lambda/c) sum_z gamma_z.

    Args:
        rule: The rule that makes mu of the clients' updates.
        share: lambda in [0, 1]; 0 is the rule alone, 1 the server alone.

    Note:
        The authors' code mixes with one step on all of the server's samples, which is the same where every class has
        equally many and a client uploads one gradient.

    >>> import torch
    >>> from lightning_fl.aggregator.average import Average
    >>> updates, class_updates = torch.tensor([[1.0, 1.0]]), torch.tensor([[2.0, 0.0], [6.0, 0.0]])
    >>> ServerMixture(Average(), share=0.25)(updates, class_updates)
    tensor([1.7500, 0.7500])
    """

    needs_server = "updates"

    def __init__(self, rule: Aggregator, share: Share = 0.25):
        super().__init__(rule)
        self.share = share

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        result = aggregated(self.rule, updates, server)
        weights, trust = (None if w is None else (1 - self.share) * w for w in (result.weights, result.trust))
        mixed = (1 - self.share) * result.update + self.share * server.class_updates.mean(0)
        return replace(result, answer=mixed, weights=weights, trust=trust)
