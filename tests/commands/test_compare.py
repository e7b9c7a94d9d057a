"""scripts/compare.py as a user types it; plot of many runs; the table of train -m."""

import pytest

from lightning_fl.commands import compare, plot, train
from tests import saved
from tests.commands.test_plot import QUIET, SMALL


@pytest.fixture
def command(typed):
    return lambda main, *words: typed(main, "command", *words)


def test_table_of_train_and_of_compare(command, tmp_path):
    several = ("-m", "aggregator=boba,median", "seed=0,1", "hydra.sweep.dir=many")
    code, out, err = command(train.main, *SMALL, *QUIET, *several)
    assert (code, err) == (0, "")
    table = out[out.rindex("Accuracy (%), mean") :].strip()
    assert "mean of 2 completed runs" in table
    assert [line.split()[0] for line in table.splitlines()[3:]] == ["boba", "median"]

    code, again, _ = command(compare.main, "many", "--rows", "aggregator", "--out", "out")
    assert code == 0
    endings = ("md", "csv", "tex", "html", "png", "pdf")
    names = [*(f"compare.{ending}" for ending in endings), "curves.png", "curves.pdf"]
    assert again.splitlines() == [*table.splitlines(), *(f"out/{name}" for name in names)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)

    code, out, _ = command(train.main, *SMALL, *QUIET, "hydra.run.dir=one")
    assert code == 0
    assert "completed runs" not in out


def test_plot_of_more_than_eight_runs(command, tmp_path):
    for i in range(9):
        saved.run(tmp_path / "runs" / "today" / str(i), saved.changed(saved.CONFIG, seed=i))
    (tmp_path / "runs" / "today" / "0" / "summary.json").unlink()
    assert command(plot.main, "runs", "--out", "runs/today/1/config.yaml")[0] == 2
    code, out, err = command(plot.main, "runs", "--out", "out")
    assert (code, err) == (0, "")
    assert "75.0 ± 0.0" in out
    assert "out/compare.png" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Error: nowhere is not a folder"),
        (["runs", "--rows", "sed"], "Error: an axis needs a setting of the runs, got sed; the runs differ in nothing"),
        (["runs", "--out", "file"], "Error: --out needs a folder, got the file file."),
        (["runs", "--metric", "loss"], "Error: there is no metric loss"),
    ],
)
def test_errors(command, tmp_path, arguments, message):
    saved.run(tmp_path / "runs" / "a")
    (tmp_path / "file").touch()
    code, _, err = command(compare.main, *arguments)
    assert code == 2
    assert message in err
