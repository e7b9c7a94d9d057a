"""The app of examples/flower in Flower's simulation engine and in processes of their own, as its README shows it."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason='needs flwr (pip install "lightning-fl[flower]")')
if tuple(int(part) for part in version("flwr").split(".")[:2]) < (1, 41):
    pytest.skip(f"the app is started as flwr 1.41 does it, got {version('flwr')}", allow_module_level=True)
pytest.importorskip("ray", reason='Flower simulates by Ray (pip install "lightning-fl[flower]")')

ROOT = Path(__file__).resolve().parents[2]


def start(*words):
    """What start.py prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    given = [sys.executable, "start.py", *words]
    done = subprocess.run(
        given, cwd=ROOT / "examples" / "flower", env=environment, capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(printed):
    """Accuracy in percent, rounds skipped and remark of each strategy."""
    found = re.findall(r"^\| (\w+) \| ([\d.]+) % \| (\d+) \| (.*?) ?\|$", printed, re.MULTILINE)
    return {name: (float(accuracy), int(skipped), remark) for name, accuracy, skipped, remark in found}


@pytest.mark.slow
def test_simulated_clients():
    """Four of thirty lie, in three ways: BOBA learns, FedAvg does not survive NaN."""
    lies = "byzantine=26=bit_flip 27=label_flip 28=nan 29=nan"
    found = rows(start("simulation", "rounds=2", "timeout=300.0", "strategies=boba flower_fedavg", lies))
    assert found["boba"][0] > 40
    assert found["boba"][1:] == (0, "")
    assert found["flower_fedavg"] == (10.0, 0, "the model is not finite")


@pytest.mark.slow
@pytest.mark.thorough
def test_clients_in_processes_of_their_own():
    """One of six is Byzantine, one is killed after the first round and joins again."""
    printed = start("deployment", "rounds=3", "local-steps=20")
    killed, joined = printed.index("killed the node of partition 2"), printed.index("it joins again")
    assert killed < joined < printed.index("round 3: accuracy")
    reached, skipped, remark = rows(printed)["nnm_trimmed_mean"]
    assert reached > 25
    assert skipped < 3
    assert remark == ""
