"""A folder in the hands of another process."""

import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def elsewhere(folder):
    """Let another process hold a folder; gives the process."""
    code = "from lightning_fl.run.lock import held; import pathlib, time\n"
    code += f"with held(pathlib.Path({str(folder)!r})): print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"1\n"
        try:
            yield other
        finally:
            other.kill()
