"""From a run's kept rounds, tell whom each rule would have trusted, who stands out, and what a lie would do.

lightning-fl audit FOLDER                                    of RobustStrategy(..., folder=FOLDER, keep="gram")
lightning-fl audit FOLDER --rules krum,caf --f 2
"""

from html import escape
from pathlib import Path

from lightning_fl.commands import out_folder, parser_of
from lightning_fl.errors import DataError, SettingError
from lightning_fl.run.config import check_choices, compose
from lightning_fl.run.explain import explained
from lightning_fl.text import shown

RULES = "geometric_median,krum,multi_krum,caf"


def audit(folder: Path, names: list[str], f: int, out: Path) -> None:
    """Print the table, and write it with a picture for each rule as a page."""
    check_choices([f"aggregator={name}" for name in names])
    if not folder.is_dir():
        raise DataError(f"audit needs the folder of a run, got {folder}, which is not there.")
    from lightning_fl import files, plot
    from lightning_fl.audit.audit import audited
    from lightning_fl.audit.kept import kept_rounds
    from lightning_fl.run import page
    from lightning_fl.run.assemble import make

    rules = {name: make(compose([f"aggregator={name}", f"f={f}"]).aggregator) for name in names}
    found = audited(kept_rounds(folder), rules)
    told = f"Each rule is told f = {f} (--f)."
    print(found, told, sep="\n")
    if not (found.weights or found.moved):
        raise SettingError(f"audit has no rule left of {', '.join(names)}; name others by --rules.")
    parts = [
        f"<h1>{escape(str(folder))}</h1>",
        page.table(*found.cells),
        *(f"<p>{escape(n)}</p>" for n in [*found.notes, told]),
    ]
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in found.weights.items():
        path = out / f"audit_{name}.png"
        plot.save(plot.client_weights(rows, [], [], f"whom {name} would have trusted"), path)
        parts.append(page.picture([path], f"weights of {name}", "A row is a client, bright where the rule trusted it."))
    files.write(out / "audit.html", page.document(f"audit of {folder}", parts))
    print(shown(out / "audit.html"))


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", type=Path, help="of the run")
    parser.add_argument("--rules", default=RULES, help=f"names of configurations ({RULES})")
    parser.add_argument("--f", type=int, default=1, help="what the rules tolerate (1)")
    parser.add_argument("--out", help="folder for the page and its pictures (that of the run)")
    with explained():
        given = parser.parse_args()
        audit(given.folder, given.rules.split(","), given.f, out_folder(given.out or given.folder))
