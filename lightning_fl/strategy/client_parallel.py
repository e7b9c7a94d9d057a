"""Several processes, each of which computes the updates of its own clients; see `lightning_fl.updates.exchange`."""

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from time import sleep
from typing import Any

import pytorch_lightning as pl
import torch.distributed as dist
from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_original_cwd
from lightning_fabric.utilities.distributed import _set_num_threads_if_needed
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher

from lightning_fl.errors import RESUME
from lightning_fl.text import for_hydra
from lightning_fl.updates.exchange import same_start

# Seconds between two looks at the other processes, and how long this one may take to report the loss by itself.
_LOOK, _PATIENCE = 1.0, 5.0
# Exit codes of a process that has ended as it should, also where Ctrl-C or SIGTERM has stopped the run.
_FINE = (None, 0, 130, 143)


class ClientParallel(DDPStrategy):
    """Launch, place and connect processes as Lightning's DDP does, without a hook on gradients.

    A round has no backward pass of Lightning's: `FederatedModule` exchanges updates by itself.  Lightning starts the
    script once more for each further process of a node, unless torchrun, SLURM or another launcher has started it.

    Args:
        settings: See ``pytorch_lightning.strategies.DDPStrategy``, such as ``process_group_backend``.
    """

    def setup_environment(self) -> None:
        """Connect the processes until the program ends; Lightning ends the connections of NCCL alone."""
        super().setup_environment()
        atexit.register(_disconnect)

    def configure_ddp(self) -> None:
        """Leave the module unwrapped; every process starts from the first one's model."""
        module: Any = self.lightning_module
        same_start(module.model)

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        self._launcher = _Launcher(self.cluster_environment, self.num_processes, self.num_nodes)


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


class _Launcher(_SubprocessScriptLauncher):
    """Lightning's launcher, which repeats the command as it was typed and reports a process that dies."""

    def launch(self, function: Callable[..., Any], *args: Any, trainer: pl.Trainer | None = None, **kwargs: Any) -> Any:
        """Start the other processes of this node, and call the function here."""
        environment = self.cluster_environment
        environment.validate_settings(num_devices=self.num_processes, num_nodes=self.num_nodes)
        _set_num_threads_if_needed(num_processes=self.num_processes)  # first: the others inherit it
        if not environment.creates_processes_externally:
            self._call_children_scripts()
            threading.Thread(target=_watch, args=(self.procs,), daemon=True).start()
        return function(*args, **kwargs)

    def _call_children_scripts(self) -> None:
        self._check_can_spawn_children()
        environment = self.cluster_environment
        os.environ["MASTER_ADDR"] = environment.main_address
        os.environ["MASTER_PORT"] = str(environment.main_port)
        os.environ["NODE_RANK"] = str(environment.node_rank())
        os.environ["LOCAL_RANK"] = str(environment.local_rank())
        os.environ["WORLD_SIZE"] = str(self.num_processes * self.num_nodes)
        command, folder = [sys.executable, *sys.orig_argv[1:]], None
        if HydraConfig.initialized():
            output = for_hydra(HydraConfig.get().runtime.output_dir)
            command, folder = [*command, f"hydra.run.dir={output}"], get_original_cwd()
        for rank in range(1, self.num_processes):
            process = subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": str(rank)}, cwd=folder)
            self.procs.append(process)


def _watch(others: Sequence[subprocess.Popen[bytes]]) -> None:
    """End this process and the others soon after one of them has failed."""
    while any(process.poll() is None for process in others) and all(process.poll() in _FINE for process in others):
        sleep(_LOOK)
    failed = [(rank, process.poll()) for rank, process in enumerate(others, start=1) if process.poll() not in _FINE]
    if not failed:
        return
    sleep(_PATIENCE)
    rank, code = failed[0]
    end = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
    print(
        f"Error: process {rank} of this machine {end}, which ends the run; {RESUME}.",
        file=sys.stderr,
        flush=True,
    )
    for process in others:
        if process.poll() is None:
            process.kill()
    os._exit(1)
