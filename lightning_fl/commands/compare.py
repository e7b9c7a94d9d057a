"""Compare any number of runs: a table over seeds, with pictures.

python scripts/compare.py runs                                                       every run inside, at any depth
python scripts/compare.py runs --rows aggregator --columns adversary --worst         the worst attack of each rule
python scripts/compare.py runs --rows aggregator --columns adversary --panels partition.alpha
python scripts/compare.py runs --metric mrd                                          or attack, kappa, auc
python scripts/compare.py runs --rows f --columns partition.gamma --map              the best rule in each cell

A row, column or panel is a value of a setting, as on the command line of train.  Runs that differ only in
the seed are one group: mean and 95 % interval (Student's t).  Other settings that differ make further panels.
A run with twin=1 does not count beside the run without: how far such pairs are apart is said below the table.

It writes compare.md, .csv, .tex, .html and .png, and curves.png; of more than fits one picture, compare_panel_1.png,
curves_panel_1.png and so on; a panel of one cell is not drawn beside others.  A map names in each cell the rule that
does best under its own worst attack: map.md ...
"""

from lightning_fl.commands import out_folder, parser_of
from lightning_fl.run.explain import explained
from lightning_fl.study.compare import METRICS, Comparison, find
from lightning_fl.study.heat_map import HeatMap


def main() -> None:
    """Run the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="a run, or a folder with runs in it")
    parser.add_argument("--rows", metavar="SETTING", help="what the rows are (the first setting that differs)")
    parser.add_argument("--columns", metavar="SETTING", help="what the columns are (the next one)")
    parser.add_argument("--panels", metavar="SETTINGS", default="", help="what the panels are, separated by commas")
    parser.add_argument("--metric", default="accuracy", help=f"{', '.join(METRICS)} (accuracy)")
    parser.add_argument("--worst", action="store_true", help="add the worst case over the columns")
    parser.add_argument("--map", action="store_true", help="the best rule over --rows and --columns")
    parser.add_argument("--out", default="runs/compared", help="folder of the files (runs/compared)")
    with explained():
        given = parser.parse_args()
        folder = out_folder(given.out)
        panels = [name.strip() for name in given.panels.split(",") if name.strip()]
        axes = (find(given.folders), given.rows, given.columns, panels, given.metric)
        if given.map:
            best = HeatMap(*axes)
            print(best.report().terminal())
            written = best.write(folder)
        else:
            found = Comparison(*axes)
            print(found.text(given.worst))
            written = found.write(folder, given.worst)
        for path in written:
            print(path)
