"""A training killed at each of its moments: ``python -m tests.callback.killed FOLDER``.

Moments are when a file changes, and when a round, an evaluation or the end begins or is over.  For each of them a run
is killed there (SIGKILL, in a process of its own) and then goes on from what it left in ``FOLDER/NUMBER``;
``FOLDER/0`` is a run that is left alone.  Prints how many moments there are.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import lightning_fl  # noqa: F401  (first: makes torchvision importable beside a CPU-only torch)

# isort: split

import pytorch_lightning as pl
from torch.optim import SGD

from lightning_fl import FederatedModule, Federation
from lightning_fl.adversary.gaussian import Gaussian
from lightning_fl.callback.record import Record
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.client.saga import Saga
from lightning_fl.contract import world
from tests import training

ROUNDS, SAVED = 7, 3  # every second round is evaluated


class Moments(pl.Callback):
    """Count moments, and kill the process at one of them.

    Args:
        deadly: Which one; 0: none.
    """

    def __init__(self, deadly):
        self.deadly, self.passed = deadly, 0
        os.fsync = self.before(os.fsync)
        Path.replace = self.before(Path.replace, self.here)
        Path.open = self.halting(Path.open)

    def here(self, *_):
        self.passed += 1
        if self.passed == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    on_train_batch_start = on_validation_start = on_validation_end = on_train_end = on_test_end = here

    def before(self, function, then=lambda: None):
        def watched(*arguments):
            self.here()
            result = function(*arguments)
            then()
            return result

        return watched

    def halting(self, function):
        def watched(path, mode="r", *arguments, **settings):
            file = function(path, mode, *arguments, **settings)
            return Halting(file, self.here) if mode in ("wb", "ab") else file

        return watched


class Halting:
    """A file with a moment when it is open, and one when half of its content is written."""

    def __init__(self, file, here):
        self.file, self.here = file, here

    def __enter__(self):
        self.here()
        return self

    def __exit__(self, *_):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.here()
        self.file.write(content[half:])


def train(folder, deadly=0):
    """Train, from the checkpoint if there is one; gives the number of moments."""
    path = folder / "checkpoints" / "last.ckpt"
    moments = Moments(deadly)
    callbacks = [Gaussian(1.0, "updates"), Record(folder), RoundCheckpoint(path, SAVED), moments]
    trainer = training.trainer(callbacks, ROUNDS, enable_checkpointing=True)
    module = FederatedModule(world.model(), Saga(2, 1.0), partial(SGD, lr=0.1, momentum=0.9))
    data = training.data(Federation(4, 1, "replacement", "uniform"))
    training.fit(trainer, module, data, path if path.exists() else None)
    trainer.save_checkpoint(path)
    training.evaluate(trainer, module, data)
    return moments.passed


def apart(work):
    """Work in a process of its own; gives its exit status."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder):
    moments = apart(lambda: train(folder / "0"))
    for number in range(1, moments + 1):
        assert apart(lambda: train(folder / str(number), number)) == -signal.SIGKILL  # noqa: B023
        assert apart(lambda: train(folder / str(number))) > 0  # noqa: B023
    print(moments)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
