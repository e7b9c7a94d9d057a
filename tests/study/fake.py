"""Stands for the training of a run: what it does is in the run's first override."""

import json
import os
import signal
import sys
import time

import torch

from lightning_fl.study import worker


def work(run):
    """Do it, in a worker."""
    worker._exit_code = train
    return worker.work(run)


def train(run):
    """Do it, alone."""
    given = {"threads": torch.get_num_threads(), "here": os.getcwd(), "variable": os.environ.get("A_VARIABLE")}
    (run.folder / "given.json").write_text(json.dumps(given))

    def end(status):
        text = {"status": status, "rounds": 3, "seconds": 1.0, "last_evaluation": {"accuracy": 0.918}}
        (run.folder / "summary.json").write_text(json.dumps(text))
        return 0

    do = run.overrides[0]
    if do == "fail":
        print("Traceback\nValueError: the reason\nmore", flush=True)
        return 2
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "wait":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(end("interrupted")))
        (run.folder / "started").touch()
        time.sleep(60)
    return end("diverged" if do == "diverge" else "completed")
