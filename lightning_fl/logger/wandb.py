"""Weights & Biases: online with a key, offline without."""

import netrc
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import wandb
from pytorch_lightning.loggers import WandbLogger

from lightning_fl.text import shown


class Wandb(WandbLogger):
    """Lightning's logger, which also says where it records, and draws several curves into one native chart."""

    @property
    def place(self) -> str:
        """Project and address of the run, or its folder and how to upload it."""
        run = self.experiment
        if getattr(run, "disabled", False):
            return "Weights & Biases, disabled by WANDB_MODE"
        if run.offline:
            sync = f"wandb sync {shown(run.settings.sync_dir)}"
            return f"Weights & Biases, project {run.project}, offline; {sync} uploads the run"
        return f"Weights & Biases, project {run.project}, {run.url}"

    def log_series(self, key: str, title: str, rounds: Sequence[int], series: Mapping[str, Sequence[float]]) -> None:
        """Log a chart of several curves over rounds.

        Args:
            key: The chart's name.
            title: Its heading.
            rounds: Where the curves have their points.
            series: The values of each curve by its name.
        """
        chart = wandb.plot.line_series(list(rounds), list(series.values()), list(series), title, "round")
        self.experiment.log({key: chart})


def wandb_logger(save_dir: str, **settings: Any) -> Wandb:
    """Make a Weights & Biases logger; without a key it records offline (``wandb sync`` uploads later).

    The environment variable WANDB_MODE (offline, disabled or shared) has the last word.

    Args:
        save_dir: Where W&B keeps its files.
        settings: Further settings of ``pytorch_lightning.loggers.WandbLogger``.
    """
    mode = os.environ.get("WANDB_MODE", "online")
    offline = mode != "disabled" and not (mode in ("online", "shared") and has_key())
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    logger = Wandb(save_dir=save_dir, offline=offline, settings=wandb.Settings(silent=True), **settings)
    getattr(logger, "_wandb_init", {}).pop("anonymous", None)  # Lightning always passes it, W&B always warns of it
    return logger


def has_key() -> bool:
    """Tell whether this user can log in to Weights & Biases without being asked."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    url = urlparse(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url)
    hosts = [url.netloc, url.hostname or ""]
    if url.hostname == "api.forge.coreweave.com":
        hosts.append("api.wandb.ai")  # the name before wandb 0.31, which still accepts keys stored under it
    try:
        keys = netrc.netrc(os.environ.get("NETRC"))
        return any(keys.authenticators(host) for host in hosts)
    except (OSError, netrc.NetrcParseError):
        return False
