"""Weights & Biases: online where there is a key, offline where there is none."""

import netrc
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import wandb
from pytorch_lightning.loggers import WandbLogger


def wandb_logger(save_dir: str, **settings: Any) -> WandbLogger:
    """Make a Weights & Biases logger; without a key it records offline (``wandb sync`` uploads later).

    Args:
        save_dir: Where W&B keeps its files.
        settings: Further settings of ``pytorch_lightning.loggers.WandbLogger``.
    """
    online = has_key() and os.environ.get("WANDB_MODE", "online") == "online"
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    return WandbLogger(save_dir=save_dir, offline=not online, settings=wandb.Settings(silent=True), **settings)


def has_key() -> bool:
    """Whether this user can log in to Weights & Biases without being asked."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(wandb.Settings().base_url).hostname or ""
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
