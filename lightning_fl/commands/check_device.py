"""What an accelerator computes beside the CPU: do this first on a new machine; eight minutes at most.

lightning-fl check-device                       the accelerator that torch finds
lightning-fl check-device --device cpu          the CPU beside itself: tries the command
lightning-fl check-device --only speed,engines  some of the parts, separated by commas
lightning-fl check-device --seconds 120         end after about so long, with what there is by then

It compares every rule, attack and client with the CPU, in float32 and float64; changes over from one to the other
in the middle of short runs; and times rounds, engines of clients, inner products and several runs at once.
Everything is written to check-device.json as it is found (--out names another file).  Needs no network.
"""

import json
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lightning_fl import __version__, files
from lightning_fl.commands import parser_of
from lightning_fl.errors import SettingError
from lightning_fl.network.threads import n_cores
from lightning_fl.run.config import choose
from lightning_fl.run.explain import explained
from lightning_fl.run.version import version
from lightning_fl.tables import table

if TYPE_CHECKING:
    import torch  # help does not wait for it

Record = dict[str, Any]
ACCELERATORS = {"cuda": "gpu", "cpu": "cpu"}  # Lightning's names
TORCH_NAMES = {name: kind for kind, name in ACCELERATORS.items()}


def about(device: "torch.device") -> Record:
    """Versions and machine."""
    import numpy as np
    import pytorch_lightning as pl
    import torch

    found: Record = {
        "lightning_fl": __version__,
        "code": version(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pytorch_lightning": pl.__version__,
        "numpy": np.__version__,
        "system": platform.platform(),
        "cores": n_cores(),
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "memory": properties.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "capability": list(torch.cuda.get_device_capability(device)),
            "tf32": {
                "matrix products": torch.backends.cuda.matmul.allow_tf32,
                "convolutions": torch.backends.cudnn.allow_tf32,
            },
        }
    return found


def speed(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """Rounds of each job on the device and on the CPU, in turn."""
    from lightning_fl.device.speed import JOBS, rounds_of

    for name, (shape, n, overrides) in JOBS.items():
        for where in dict.fromkeys([device.type, "cpu"]):
            if enough():
                return
            yield {"job": name, "on": where, **rounds_of(shape, n, overrides, ACCELERATORS[where], 3.0)}


def engines(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """How many clients are best computed at a time."""
    from lightning_fl.device.speed import engines

    return engines(ACCELERATORS[device.type], 1.0, enough)


def agreement(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """Every rule, attack and client beside the CPU."""
    from lightning_fl.device.agreement import differences

    return differences(device, enough)


def resumed(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """Short runs that change over."""
    from lightning_fl.device.agreement import resumed

    return resumed(ACCELERATORS[device.type])


def products(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """Matrices of inner products."""
    from lightning_fl.device.speed import products

    return products(device)


def together(device: "torch.device", enough: Callable[[], bool]) -> Iterator[Record]:
    """Several runs at once."""
    from lightning_fl.device.speed import together

    for workers in (1, 4):
        if enough():
            return
        yield together(ACCELERATORS[device.type], workers, 3.0)


PARTS: dict[str, Callable[["torch.device", Callable[[], bool]], Iterable[Record]]] = {
    part.__name__: part for part in (agreement, speed, resumed, products, engines, together)
}


def shown(part: str, records: list[Record]) -> str:
    """What the terminal shows of a part."""
    failed = [record for record in records if "error" in record and isinstance(record["error"], str)]
    lines = []
    if part == "agreement":
        worst: dict[tuple[str, str], float] = {}
        for record in records:
            kind, difference = (record["kind"], record["type"]), record["difference"]
            worst[kind] = max(worst.get(kind, 0.0), difference if difference is not None else 0.0)
        other = [record for record in records if not record["agrees"] and record not in failed]
        lines += [f"{sum(record['agrees'] for record in records)} of {len(records)} agree with the CPU"]
        lines += [f"  {kind}, {dtype}: at most {gap:.1e} of the spread" for (kind, dtype), gap in worst.items()]
        lines += [f"  differs: {r['kind']} {r['name']}, {r['type']}: {r['difference']:.1e}" for r in other]
    else:
        fine = [record for record in records if record not in failed]
        if fine:
            lines += [table(list(fine[0]), [[_said(value) for value in record.values()] for record in fine])]
    lines += [f"  failed: {' '.join(str(v) for k, v in r.items() if k != 'error')}: {r['error']}" for r in failed]
    return "\n".join(lines)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(number)}" for name, number in value.items()) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--device", help="cuda or cpu (the accelerator that torch finds)")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, separated by commas ({', '.join(PARTS)})")
    parser.add_argument("--seconds", type=float, default=480, help="end after about so long (480)")
    parser.add_argument("--out", type=Path, default=Path("check-device.json"), help="file (check-device.json)")
    with explained():
        given = parser.parse_args()
        import torch

        chosen = [choose(name.strip(), PARTS, "part") for name in given.only.split(",") if name.strip()]
        if not chosen:
            raise SettingError(
                f"--only needs parts separated by commas, got {given.only!r}; valid: {', '.join(PARTS)}."
            )
        if not given.seconds > 0:
            raise SettingError(f"--seconds must be above 0, got {given.seconds:g}.")
        named = TORCH_NAMES.get(given.device, given.device)
        kind = named or ("cuda" if torch.cuda.is_available() else None)
        if kind is None or (kind == "cuda" and not torch.cuda.is_available()):
            raise SettingError(
                "check-device needs an accelerator, torch finds no CUDA device here; --device cpu tries the command."
            )
        device = torch.device(choose(kind, ACCELERATORS, "device"), *([0] if kind == "cuda" else []))
        found: Record = {"about": about(device)}
        print("\n".join(f"{name:18} {_said(value)}" for name, value in found["about"].items()), flush=True)
        started = perf_counter()

        def enough() -> bool:
            return perf_counter() - started > given.seconds

        for name in chosen:
            records: list[Record] = []
            found[name] = records
            began = perf_counter()
            if enough():
                print(f"\n{name}: no time left", flush=True)
                files.write(given.out, json.dumps(found, indent=1))
                continue
            try:
                for record in PARTS[name](device, enough):
                    records.append(record)
                    files.write(given.out, json.dumps(found, indent=1))
                    if enough():
                        break
            except Exception as error:  # the other parts may work
                records.append({"part": name, "error": f"{type(error).__name__}: {error}"[:1000]})
            cut = ""
            if enough():  # asked here, as a part looks at the time itself, too
                found["stopped"], cut = name, f"; stopped after {given.seconds:g} s, the rest was not tried"
            files.write(given.out, json.dumps(found, indent=1))
            print(f"\n{name} ({perf_counter() - began:.0f} s{cut})\n{shown(name, records)}", flush=True)
        print(f"\n{given.out}")
        sys.stdout.flush()
