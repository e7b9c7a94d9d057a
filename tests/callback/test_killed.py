"""A run that is killed, wherever, and goes on, leaves what one leaves that was never stopped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.callback.test_record import timeless

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_kill_at_any_moment_changes_nothing(tmp_path):
    command = [sys.executable, "-m", "tests.callback.killed", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    moments = int(done.stdout.split()[-1])
    assert moments > 60
    whole = tmp_path / "0"
    expected = torch.load(whole / "checkpoints/last.ckpt", weights_only=True)
    rows = timeless(whole)
    assert [row["accuracy"] != "" for row in rows] == 3 * [False, True] + [True]
    for number in range(1, moments + 1):
        folder = tmp_path / str(number)
        assert timeless(folder) == rows, number
        assert list(timeless(folder)[0]) == list(rows[0]), number
        assert (folder / "weights.csv").read_bytes() == (whole / "weights.csv").read_bytes(), number
        state = torch.load(folder / "checkpoints/last.ckpt", weights_only=True)
        assert state["global_step"] == expected["global_step"] == 7
        for name, value in expected["state_dict"].items():
            assert torch.equal(state["state_dict"][name], value), (number, name)
        assert sorted(os.listdir(folder)) == sorted(os.listdir(whole)), number
        assert os.listdir(folder / "checkpoints") == ["last.ckpt"], number
