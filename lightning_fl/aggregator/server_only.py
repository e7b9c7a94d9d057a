"""Training on the server's few samples alone: what a robust rule must beat to be worth its clients.

The baseline "Server" of Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness.
AISTATS 2024. arXiv:2208.12932, Table 1.
"""

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates


class ServerOnly(Aggregator):
    """Ignore the clients; take the update of one virtual client that holds all of the server's samples.

    Note:
        The authors' code keeps the learning rate constant for this baseline: add ``schedule=constant`` to match it.
    """

    reads_updates = False
    needs_server = "updates"

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Return the server's own update; every client's weight is 0."""
        return Aggregation(server.update, updates.data_weights.new_zeros(updates.n))
