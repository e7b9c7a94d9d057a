"""Tell what robust rules would cost and save for your own sites, from their samples per class.

lightning-fl advise sites.csv                 one site may lie
lightning-fl advise sites.csv --f 2 --more    two may; more rules, rounds and seeds
lightning-fl advise sites.csv --images        on images of digits, a digit for each class, in place of synthetic points
lightning-fl advise sites.csv --server-samples 20 --participation 0.8

sites.csv has a column site and one for each class with its number of samples; or a column total, and classes' shares.
"""

from argparse import Namespace
from collections.abc import Iterator
from html import escape
from pathlib import Path

from tqdm import tqdm

from lightning_fl.commands import out_folder, parser_of
from lightning_fl.errors import DataError
from lightning_fl.run.explain import explained
from lightning_fl.text import shown

RULES = [
    "average",
    "median",
    "trimmed_mean",
    "geometric_median",
    "nnm_trimmed_mean",
    "arc_nnm_trimmed_mean",
    "krum",
    "sequential_centred_clipping",
]
MORE = [*RULES, "multi_krum", "nnm_geometric_median", "caf", "centred_clipping"]
WITH_SAMPLES = ["server_only", "fltrust"]  # at the server; the first is the line to beat


def answer(given: Namespace, out: Path) -> None:
    """Play, print and write the page."""
    if not given.sites.is_file():
        raise DataError(f"advise needs a CSV file of the sites, got {given.sites}, which is not there.")
    from lightning_fl import files
    from lightning_fl.aggregator.base import Aggregator
    from lightning_fl.run import page
    from lightning_fl.run.assemble import make
    from lightning_fl.run.config import compose
    from lightning_fl.study.advise import Sites, advise

    def rule(name: str, tolerated: int) -> Aggregator:
        made: Aggregator = make(compose([f"aggregator={name}", f"f={tolerated}"]).aggregator)
        return made

    rules = (MORE if given.more else RULES) + (WITH_SAMPLES if given.server_samples else [])
    rounds, seeds = (200, 3) if given.more else (60, 1)

    def played() -> Iterator[str]:  # the bar begins with the first rule, once everything is checked
        yield from tqdm(rules, desc="Playing", unit="rule")

    found = advise(
        Sites.read(given.sites),
        given.f,
        played(),
        rule,
        rounds=rounds,
        seeds=seeds,
        images=given.images,
        server_samples=given.server_samples,
        participation=given.participation,
    )
    print(found)
    notes = [f"<p>{escape(note)}</p>" for note in found.notes]
    title = f"advice for {given.sites.stem}"
    files.write(
        out / "advice.html", page.document(title, [f"<h1>{escape(title)}</h1>", page.table(*found.cells), *notes])
    )
    print(shown(out / "advice.html"))


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("sites", type=Path, help="a CSV file")
    parser.add_argument("--f", type=int, default=1, help="how many sites may lie (1)")
    parser.add_argument("--more", action="store_true", help="more rules, 200 rounds instead of 60, 3 seeds")
    parser.add_argument("--images", action="store_true", help="images of digits, of up to ten classes")
    parser.add_argument(
        "--server-samples",
        type=int,
        default=0,
        help="clean samples of each class at the server, for rules that need them",
    )
    parser.add_argument("--participation", type=float, default=1.0, help="share of the sites in a round (1)")
    parser.add_argument("--out", default="runs/advice", help="folder for the page (runs/advice)")
    with explained():
        given = parser.parse_args()
        answer(given, out_folder(given.out))
