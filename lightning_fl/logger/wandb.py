"""Weights & Biases: online with a key and a network, offline without."""

import netrc
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import ParseResult, urlparse
from urllib.request import urlopen

import wandb
from pytorch_lightning.loggers import WandbLogger

from lightning_fl.text import said, shown

_PATIENCE = 5.0  # seconds for the server to answer
_INIT = 15.0  # seconds for it to make a run


class Wandb(WandbLogger):
    """Lightning's logger, which also says where it records, and draws several curves into one native chart.

    It records offline where the server cannot make the run.
    """

    @property
    def experiment(self) -> Any:
        """W&B's own run; it is started if it was not yet."""
        try:
            return super().experiment
        except wandb.Error as error:
            if self._offline:
                raise
            _say_offline(said(error, named=True))
            self._offline, self._wandb_init["mode"] = True, "offline"
            return super().experiment

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
    """Make a Weights & Biases logger; without a key or a network it records offline (``wandb sync`` uploads later).

    The environment variable WANDB_MODE (offline, disabled or shared) has the last word.

    Args:
        save_dir: Where W&B keeps its files.
        settings: Further settings of ``pytorch_lightning.loggers.WandbLogger``.
    """
    mode = os.environ.get("WANDB_MODE", "online")
    offline = mode != "disabled" and not (mode in ("online", "shared") and has_key())
    if not offline and mode != "disabled" and not reachable():
        _say_offline(f"{_server().netloc} does not answer")
        offline = True
    Path(save_dir).mkdir(parents=True, exist_ok=True)
    if not os.access(Path.home(), os.W_OK):  # where W&B would stage what a chart is made of
        os.environ.setdefault("WANDB_DATA_DIR", save_dir)
    chosen = wandb.Settings(silent=True)
    if "WANDB_INIT_TIMEOUT" not in os.environ:
        chosen.init_timeout = _INIT
    logger = Wandb(save_dir=save_dir, offline=offline, settings=chosen, **settings)
    getattr(logger, "_wandb_init", {}).pop("anonymous", None)  # Lightning always passes it, W&B always warns of it
    return logger


def _say_offline(why: str) -> None:
    print(f"Weights & Biases records offline: {why}.", file=sys.stderr, flush=True)


def _server() -> ParseResult:
    return urlparse(os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url)


def reachable() -> bool:
    """Tell within seconds whether W&B's server answers, be it with an error."""
    answered = []

    def ask() -> None:
        with suppress(OSError):
            try:
                urlopen(_server().geturl(), timeout=_PATIENCE).close()
            except HTTPError as error:
                error.close()
            except URLError as error:
                if not isinstance(error.reason, ssl.SSLError):  # W&B has certificates of its own
                    raise
            answered.append(True)

    asking = Thread(target=ask, daemon=True)  # looking up a name has no timeout of its own
    asking.start()
    asking.join(_PATIENCE)
    return bool(answered)


def has_key() -> bool:
    """Tell whether this user can log in to Weights & Biases without being asked."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    url = _server()
    hosts = [url.netloc, url.hostname or ""]
    if url.hostname == "api.forge.coreweave.com":
        hosts.append("api.wandb.ai")  # the name before wandb 0.31, which still accepts keys stored under it
    for name in [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]:  # the latter on Windows
        with suppress(OSError, netrc.NetrcParseError):
            keys = netrc.netrc(os.path.expanduser(name))
            if any(keys.authenticators(host) for host in hosts):
                return True
    return False
