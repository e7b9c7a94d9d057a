"""Errors in a few lines."""

import io
import os
import subprocess
import sys

import pytest
import torch

from lightning_fl.run.explain import explain, explained


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory (MemoryError)."),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory:\nyou tried to allocate 80 bytes."),
            "there is not enough memory (DefaultCPUAllocator: can't allocate memory: you tried to allocate 80 bytes.).",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
            "there is not enough memory (CUDA out of memory. Tried to allocate 20.00 GiB.).",
        ),
        (RuntimeError("a bug"), None),
    ],
)
def test_too_little_memory_is_said_in_one_line(error, message):
    assert explain(error) == message


def test_letters_that_the_terminal_lacks_are_escaped(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    with explained():
        print("ü \udcff")
    assert terminal.buffer.getvalue() == rb"\xfc \udcff" + os.linesep.encode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux")
@pytest.mark.parametrize(
    ("out", "code", "message"),
    [
        (">&-", 0, ""),
        (">/dev/full", 2, "Error: standard output: No space left on device; fix that, then run this again.\n"),
    ],
)
def test_stdout_that_takes_nothing(tmp_path, out, code, message):
    run = "from lightning_fl.run.explain import explained\nwith explained():\n  print(1, flush=True)\n  open('x', 'w')"
    script = f'exec {sys.executable} -c "{run}" {out}'
    done = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, message)
    assert (tmp_path / "x").exists() == (code == 0)


def test_an_exit_code_of_1_stays():
    with pytest.raises(SystemExit) as stop, explained():
        sys.exit(1)
    assert stop.value.code == 1
