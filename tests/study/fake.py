"""Stands for the training of a run: what it does is in the run's first override."""

import json
import os
import signal
import sys
import time

from lightning_fl.run.lock import BusyError, held
from lightning_fl.study import pool


def work(run, threads, place, environment):
    """Do it, in a process of its own."""
    pool.begin(run, place, environment)
    try:
        with held(run.folder):
            train(run, threads, place)
    except BusyError:
        sys.exit(pool.HELD)


def train(run, threads, place):
    """Do it, alone."""
    given = {"threads": threads, "place": str(place), "here": os.getcwd(), "variable": os.environ.get("A_VARIABLE")}
    (run.folder / "given.json").write_text(json.dumps(given))

    def end(status):
        text = {"status": status, "rounds": 3, "seconds": 1.0, "last_evaluation": {"accuracy": 0.918}}
        (run.folder / "summary.json").write_text(json.dumps(text))
        sys.exit(0)

    do = run.overrides[0]
    if do == "fail":
        print("Traceback\nValueError: the reason\nmore", flush=True)
        sys.exit(2)
    if do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "wait":
        signal.signal(signal.SIGINT, lambda *_: end("interrupted"))
        (run.folder / "started").touch()
        time.sleep(60)
    end("diverged" if do == "diverge" else "completed")
