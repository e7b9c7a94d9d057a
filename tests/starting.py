"""Start Python's command lines in processes of their own, forked from a server that has imported torch once."""

import atexit
import multiprocessing
import os
import runpy
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path
from tempfile import NamedTemporaryFile

import torch

_CONTEXT = multiprocessing.get_context("forkserver")
_preload = forkserver.set_forkserver_preload
forkserver.set_forkserver_preload = lambda modules: _preload([*modules, "tests.forked"])  # a runner's workers, too
_CONTEXT.set_forkserver_preload(["lightning_fl.run.command"])


class Started:
    """What `subprocess.Popen` of a command line of Python's is, without the seconds that imports take.

    Python, its options and what the environment says when torch is imported are those of the tests.  Pictures
    stay blank.

    Args:
        words: A script, -m and a module, or -c and code; then arguments.
        cwd: Working folder.
        environment: Environment; None: that of the tests.
    """

    def __init__(self, *words: object, cwd: Path | str = ".", environment: Mapping[str, str] | None = None):
        self._printed = [NamedTemporaryFile("r", errors="replace") for _ in range(2)]  # noqa: SIM115
        names, given = [file.name for file in self._printed], dict(os.environ if environment is None else environment)
        self._process = _CONTEXT.Process(target=_become, args=([*map(str, words)], str(cwd), given, names))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal that has killed it; None: it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Wait for the end, and kill it if that does not come; gives what was printed, and printed as errors."""
        self._process.join(timeout)
        late = self.returncode is None
        self.send_signal(signal.SIGKILL)
        self._process.join()
        out, err = (file.read() for file in self._printed)
        for file in self._printed:
            file.close()
        assert not late, f"has not ended after {timeout} s: {out}{err}"
        return out, err


def _become(words: list[str], cwd: str, environment: dict[str, str], names: list[str]) -> None:
    for number, name in enumerate(names, start=1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_APPEND), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    if "OMP_NUM_THREADS" in environment:
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    if "PYTHONWARNINGS" in environment:
        warnings.simplefilter(environment["PYTHONWARNINGS"])
    sys.orig_argv[1:] = words
    what, *rest = words[1:] if words[0] in ("-m", "-c") else words
    sys.argv = [what, *rest]
    try:
        if words[0] == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            exec(what, {"__name__": "__main__"})
        else:
            runpy.run_path(what, run_name="__main__")
    finally:  # as Python itself ends, unlike a fork
        threading._shutdown()
        atexit._run_exitfuncs()
