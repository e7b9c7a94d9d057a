from . import (
    adversary,
    aggregator,
    callback,
    client,
    data,
    flower,
    logger,
    loss,
    metric,
    model,
    partition,
    schedule,
    server,
    strategy,
    theory,
)
from .adversary.base import Adversary, AttackContext
from .aggregator.base import Aggregation, Aggregator, Weighting
from .client.base import Client, ClientResult
from .data.base import FederatedDataModule
from .data.tensor_data import TensorData
from .errors import DataError, DivergedError, SettingError
from .federation import Federation
from .module import FederatedModule
from .partition.base import Partition
from .round import Round
from .run.python import Run, load_model, load_module, train
from .samples import ClientBatch, RoundBatch, Samples
from .server_oracle import ServerOracle
from .study.compare import Comparison, compare
from .updates.finite import finite_rows
from .updates.updates import Updates
from .yardstick.worst import kappa, worst

__version__: str

__all__ = [
    "Adversary",
    "Aggregation",
    "Aggregator",
    "AttackContext",
    "Client",
    "ClientBatch",
    "ClientResult",
    "Comparison",
    "DataError",
    "DivergedError",
    "FederatedDataModule",
    "FederatedModule",
    "Federation",
    "Partition",
    "Round",
    "RoundBatch",
    "Run",
    "Samples",
    "ServerOracle",
    "SettingError",
    "TensorData",
    "Updates",
    "Weighting",
    "adversary",
    "aggregator",
    "callback",
    "client",
    "compare",
    "data",
    "finite_rows",
    "flower",
    "kappa",
    "load_model",
    "load_module",
    "logger",
    "loss",
    "metric",
    "model",
    "partition",
    "schedule",
    "server",
    "strategy",
    "theory",
    "train",
    "worst",
]
