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

    The environment variable WANDB_MODE (offline or disabled) has the last word.

    Args:
        save_dir: Where W&B keeps its files.
        settings: Further settings of ``pytorch_lightning.loggers.WandbLogger``.
    """
    mode = os.environ.get("WANDB_MODE", "online")
    offline = mode != "disabled" and not (mode == "online" and has_key())
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    logger = WandbLogger(save_dir=save_dir, offline=offline, settings=wandb.Settings(silent=True), **settings)
    getattr(logger, "_wandb_init", {}).pop("anonymous", None)  # Lightning passes it always, W&B warns about it always
    return logger


def has_key() -> bool:
    """Whether this user can log in to Weights & Biases without being asked."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    url = urlparse(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url)
    hosts = [url.netloc, url.hostname or ""]
    if url.hostname == "api.forge.coreweave.com":
        hosts.append("api.wandb.ai")  # the name until wandb 0.31, which still takes keys stored under it
    try:
        keys = netrc.netrc(os.environ.get("NETRC"))
        return any(keys.authenticators(host) for host in hosts)
    except (OSError, netrc.NetrcParseError):
        return False
