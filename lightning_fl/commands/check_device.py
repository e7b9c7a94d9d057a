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
from pathlib import Path
from pkgutil import resolve_name
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


# What is tried, by name: the function of lightning_fl.device that yields a record each.
PARTS = {
    "agreement": "agreement:differences",
    "speed": "speed:jobs",
    "resumed": "agreement:resumed",
    "products": "speed:products",
    "engines": "speed:engines",
    "together": "speed:together",
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
        named = {"gpu": "cuda"}.get(given.device, given.device)
        kind = named or ("cuda" if torch.cuda.is_available() else None)
        if kind is None or (kind == "cuda" and not torch.cuda.is_available()):
            raise SettingError(
                "check-device needs an accelerator, torch finds no CUDA device here; --device cpu tries the command."
            )
        device = torch.device(choose(kind, ["cuda", "cpu"], "device"), *([0] if kind == "cuda" else []))
        found: Record = {"about": about(device)}
        print("\n".join(f"{name:18} {_said(value)}" for name, value in found["about"].items()), flush=True)
        started = perf_counter()

        def enough() -> bool:
            return perf_counter() - started > given.seconds

        for name in chosen:
            records: list[Record] = []
            found[name], began, cut = records, perf_counter(), ""
            try:
                part = resolve_name(f"lightning_fl.device.{PARTS[name]}")
                for record in () if enough() else part(device):
                    records.append(record)
                    files.write(given.out, json.dumps(found, indent=1))
                    if enough():
                        found["stopped"], cut = name, f"; stopped after {given.seconds:g} s, the rest was not tried"
                        break
            except Exception as error:  # the other parts may work
                records.append({"part": name, "error": f"{type(error).__name__}: {error}"[:1000]})
            files.write(given.out, json.dumps(found, indent=1))
            took = f" ({perf_counter() - began:.0f} s{cut})\n{shown(name, records)}" if records else ": no time left"
            print(f"\n{name}{took}", flush=True)
        print(f"\n{given.out}")
