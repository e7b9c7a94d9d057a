"""Says who takes part, before the first round."""

import pytorch_lightning as pl

from lightning_fl.module import FederatedModule
from lightning_fl.report import participants


class Participants(pl.Callback):
    """Print clients, rule, attack, model and the class table when training starts."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print."""
        assert isinstance(pl_module, FederatedModule)
        print(participants(pl_module), flush=True)
