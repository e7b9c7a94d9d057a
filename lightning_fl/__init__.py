"""Byzantine-robust federated learning under label skew, on PyTorch Lightning."""

import lightning_fl._torchvision  # noqa: F401  (first: the others import torchvision)

# isort: split
from lightning_fl.adversary.base import Adversary, AttackContext
from lightning_fl.aggregator.base import Aggregation, Aggregator, Weighting
from lightning_fl.client.base import Client, ClientResult
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import DataError, DivergedError, SettingError
from lightning_fl.federation import Federation
from lightning_fl.module import FederatedModule
from lightning_fl.partition.base import Partition
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch, RoundBatch, Samples
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates

__version__ = "0.1.0"

__all__ = [
    "Adversary",
    "Aggregation",
    "Aggregator",
    "AttackContext",
    "Client",
    "ClientBatch",
    "ClientResult",
    "DataError",
    "DivergedError",
    "FederatedDataModule",
    "FederatedModule",
    "Federation",
    "Partition",
    "Round",
    "RoundBatch",
    "Samples",
    "ServerOracle",
    "SettingError",
    "Updates",
    "Weighting",
]
