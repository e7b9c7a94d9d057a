"""Draw finished runs, and how a partition spreads the classes.

python scripts/plot.py RUN                                      pictures and report.html into the run's folder
python scripts/plot.py RUN RUN ... --out FOLDER                 runs compared; of more than eight, groups
python scripts/plot.py partition partition=dirichlet partition.alpha=0.2     who holds what, for any setting
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from lightning_fl import plot
from lightning_fl.commands import out_folder, parser_of
from lightning_fl.errors import SettingError
from lightning_fl.run import page
from lightning_fl.run.check import checked
from lightning_fl.run.config import default_settings, take_own
from lightning_fl.run.differences import named
from lightning_fl.run.explain import explained
from lightning_fl.run.saved import SavedRun
from lightning_fl.study.compare import Comparison, find
from lightning_fl.text import shown

_MOST = 8  # more runs than a legend can name are compared in groups


def draw(given: Sequence[str], out: str | None) -> None:
    """Draw one run, or several compared; a folder of several runs stands for all of them."""
    folders = find(given)
    folder = out_folder(out or (folders[0] if len(folders) == 1 else "runs/compared"))
    if len(folders) > _MOST:
        many = Comparison(folders)
        print(many.text())
        print(*map(shown, many.write(folder)), sep="\n")
        return
    named_ones = {Path(folder).resolve() for folder in given}
    missing = [run for run in folders if run not in named_ones and not (run / "summary.json").exists()]
    if 0 < len(missing) < len(folders):
        print(f"Not finished, left out: {', '.join(shown(run) for run in missing)}", file=sys.stderr)
        folders = [run for run in folders if run not in missing]
    pictures = page.write([SavedRun.read(run) for run in folders], folder, default_settings())
    print(*map(shown, [*pictures.values(), folder / "report.html"]), sep="\n")


def partition(overrides: Sequence[str], out: str | None) -> None:
    """Draw how many samples of each class each client holds."""
    from lightning_fl.run.assemble import make_data

    path = Path(out or "runs/partition.png")
    path = path if path.suffix else path / "partition.png"
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise SettingError(f"--out needs a folder or a file .png, .pdf or .svg, got {out}.")
    config = checked(overrides)
    settings = cast(dict[str, Any], OmegaConf.to_container(config))
    data = make_data(config)
    data.prepare_data()
    data.setup()
    sizes = data.server.sizes
    server = f"{min(sizes)} to {max(sizes)}" if len(set(sizes)) > 1 else f"{sizes[0]}" if sizes else "none"
    b = len(data.federation.byzantine_ids)
    title = (
        f"{named(settings['data'])}, {named(settings['partition'])}, {f'{b} Byzantine' if b else 'no attack'}\n"
        f"{sum(data.clients.sizes):,} samples; {len(data.clients)} clients hold data; server: {server} of each class"
    )
    counts = data.clients.class_counts().tolist()
    figure = plot.partition(counts, data.federation.byzantine_ids, title, data.class_names)
    plot.save(figure, path)
    print(path)


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run; or partition and settings as for train"
    )
    parser.add_argument(
        "--out", help="a folder (that of the run; of several: runs/compared); for partition a file, too"
    )
    with explained():
        given, more = parser.parse_known_intermixed_args(take_own(sys.argv[1:]))
        if given.runs[0] == "partition":
            partition([*given.runs[1:], *more], given.out)
        elif more:
            parser.error(f"unrecognized arguments: {' '.join(more)}")
        else:
            draw(given.runs, given.out)
