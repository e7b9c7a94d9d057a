"""Start the app with all that it needs on this machine, and stop everything at the end.

python start.py simulation                        30 clients in Flower's simulation engine, four of them Byzantine
python start.py deployment                        a SuperLink and six SuperNodes, one Byzantine, one killed on the way
python start.py simulation rounds=5 strategies="boba"         settings of pyproject.toml
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from robust_mnist.data import own_images

APP = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SETTINGS = {
    "simulation": {},
    # Six clients are too few for BOBA, which needs f <= n - c: 10 classes and f = 1 want 11.
    "deployment": {
        "strategies": "nnm_trimmed_mean",
        "rounds": "4",
        "byzantine": "5=bit_flip",
        "f": "1",
        "min-clients": "5",
        "timeout": "25.0",
    },
}
N_NODES, KILLED = 6, 2


@contextmanager
def process(words: list[str], log: Path, home: Path) -> Iterator[subprocess.Popen]:
    """Run a program of Flower's until the block ends; it and its children are stopped then."""
    environment = os.environ | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    with log.open("ab") as file:
        started = subprocess.Popen(
            [str(BIN / words[0]), *words[1:]],
            cwd=APP,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield started
        finally:
            stop(started)


def stop(started: subprocess.Popen, how: int = signal.SIGTERM) -> None:
    """End a program and whatever it started."""
    for sent, patience in ((how, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(started.pid, sent)
        except ProcessLookupError:
            break
        try:
            started.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    started.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def node(k: int, superlink: str, folder: Path) -> AbstractContextManager[subprocess.Popen]:
    """A SuperNode that holds the k-th part of the data, in a file of its own."""
    images = folder / f"images_{k}.pt"
    if not images.exists():
        torch.save(own_images(k, N_NODES, seed=0), images)
    words = ["flower-supernode", "--insecure", "--superlink", superlink, "--port", str(free_port())]
    words += ["--node-config", f'partition-id={k} data="{images}"']
    return process(words, folder / f"node_{k}.log", folder)


def wait_for(text: str, log: Path, running: subprocess.Popen, seconds: float = 300) -> None:
    """Wait until a log says something, or its program ends."""
    until = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        if running.poll() is not None or time.monotonic() > until:
            sys.exit(f"{text!r} is not in the log:\n{log.read_text(errors='replace')}")
        time.sleep(0.2)


def main(where: str, overrides: list[str]) -> None:
    """Start SuperLink and nodes, run the app, show what it printed."""
    settings = SETTINGS[where] | dict(override.split("=", 1) for override in overrides)
    quoted = {"strategies", "byzantine", "folder"}
    given = " ".join(f"{key}='{value}'" if key in quoted else f"{key}={value}" for key, value in settings.items())
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        superlink = f"127.0.0.1:{free_port()}"
        (folder / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{superlink}"\ninsecure = true\n'
        )
        words = ["flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]
        words += ["--port", superlink.split(":")[1], *(["--simulation"] if where == "simulation" else [])]
        link = stack.enter_context(process(words, folder / "superlink.log", folder))
        wait_for("Uvicorn running", folder / "superlink.log", link, 60)
        nodes = []
        if where == "deployment":
            nodes = [stack.enter_context(node(k, superlink, folder)) for k in range(N_NODES)]
        run = ["flwr", "run", ".", "here", "--stream", *(["--run-config", given] if given else [])]
        if where == "simulation":
            run += ["--federation-config", "num-supernodes=30 client-resources-num-cpus=1 init-args-num-cpus=2"]
        log = folder / "run.log"
        started = stack.enter_context(process(run, log, folder))
        if where == "deployment":
            wait_for("round 1: accuracy", log, started)
            stop(nodes[KILLED], signal.SIGKILL)
            print(f"killed the node of partition {KILLED} after round 1", flush=True)
            wait_for("round 2: accuracy", log, started)
            nodes.append(stack.enter_context(node(KILLED, superlink, folder)))
            print("it joins again after round 2", flush=True)
        wait_for("| strategy |", log, started, 3000)
        started.wait(60)
        for each in nodes:  # they have nothing to save, and take ten seconds to leave
            stop(each, signal.SIGKILL)
        lines = log.read_text(errors="replace").splitlines()
        print("\n".join(line for line in lines if line.startswith("|") or " round " in line))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in SETTINGS or not all("=" in word for word in sys.argv[2:]):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
