"""The command reproduce, as a user types it."""

import csv
import json
import re
import shlex
from concurrent.futures import wait

import pytest

from lightning_fl.commands import reproduce
from lightning_fl.study import grid, options, runner, store, table, table_report
from tests.study.small import SMALL, finish


@pytest.fixture
def command(tmp_path, monkeypatch, typed):
    """Run a command line with the small table alone."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "small.yaml").write_text(json.dumps(SMALL))
    for module in (grid, table, table_report):
        monkeypatch.setattr(module, "TABLES", tables)

    monkeypatch.setattr(reproduce, "stop_when_told", lambda: None)
    return lambda *words: typed(reproduce.main, "reproduce.py", *words, "--folder", tmp_path / "runs")


def test_the_list_and_a_dry_run(command, tmp_path):
    heading = "Tables, and how many of their trained cells are measured at their own settings:"
    assert command() == (0, f"{heading}\n  small      0/8  A small table\n", "")
    code, out, err = command("small", "--rows", "BOBA", "--columns", "IPM", "--dry-run", "server.lr=0.3")
    assert (code, err) == (0, "")
    assert "1 cell to do" in out
    assert "aggregator=boba server.lr=0.3 seed=0" in out
    assert "Report" not in out
    assert not [*(tmp_path / "runs").glob("[!.]*")]  # a report says what command made it


def test_a_dry_run_composes_nothing_of_the_tables_own(command, monkeypatch):
    """So many cells take long."""
    monkeypatch.setattr(grid.Grid, "compose", None)
    code, out, _ = command("small", "--dry-run")
    assert code == 0
    assert "IPM, BOBA, seed 0: " in out


def test_a_dry_run_refuses_a_misspelt_setting(command, tmp_path):
    code, _, err = command("small", "--dry-run", "serverr.lr=0.3")
    assert code == 2
    assert "there is no setting serverr.lr; did you mean server.lr?" in err
    assert not (tmp_path / "runs").exists()


def test_what_a_dry_run_prints_of_a_cell_asks_for_that_cell_alone(command):
    given = ["small", "--told", "1.5", "--scale", "0.5", "--dry-run", "server.lr=0.3"]
    line = next(line for line in command(*given)[1].splitlines() if line.startswith("  IPM, BOBA, seed 0: "))
    again = shlex.split(line.partition(" reproduce ")[2] or line.partition("reproduce.py ")[2])
    assert [place for place in command(*again, "--dry-run")[1].splitlines() if place.startswith("  ")] == [line]


def test_twins_of_the_first_seed_are_trained_too(command):
    """Six runs a seed: Acc and MRD share theirs; a drop also needs its reference's twin."""
    out = command("small", "--seeds", "2", "--twins", "--dry-run")[1]
    assert "18 cells to do" in out
    twins = [line for line in out.splitlines() if " twin=1 " in line]
    assert len(twins) == 6
    assert all(line.endswith(" twin=1 seed=0") and ", seed 0, twin: " in line for line in twins)
    few = command("small", "--twins", "0.3", "--dry-run")[1].count(" twin=1 ")
    assert 3 <= few <= 4


def test_the_list_counts_cells_of_other_settings(command, tmp_path):
    """A longer name that begins with a table's is another table's file, or nobody's."""
    kept = [
        {"row": "BOBA", "column": column, "seed": seed, "identity": "x"} for column in ("IPM", "Acc") for seed in (0, 1)
    ]
    store.write(tmp_path / "runs" / "small_scale_0.5.csv", grid.FIELDS, [*kept, kept[0] | {"row": "Dropped"}])
    store.write(tmp_path / "runs" / "smaller.csv", grid.FIELDS, kept)
    assert command()[1].splitlines()[1:] == ["  small      0/8  A small table (2 cells at other settings)"]
    store.write(tmp_path / "runs" / "small.csv", grid.FIELDS, kept[:1])
    assert command()[1].splitlines()[1:] == ["  small      1/8  A small table (2 cells at other settings)"]


def test_rows_are_found_whatever_their_case():
    picked = reproduce.picked
    assert picked("boba, A", ["BOBA", "a", "A"], "row") == ["BOBA", "A"]
    assert picked(None, ["BOBA", "a"], "row") == ["BOBA", "a"]


def test_a_label_with_a_comma_is_one_label():
    picked = reproduce.picked
    assert picked("krum, f=3", ["Krum, f=3", "BOBA"], "row") == ["Krum, f=3"]
    assert picked("BOBA,", ["Krum, f=3", "BOBA"], "row") == ["BOBA"]


def test_options_have_their_whole_names(command):
    """--seed 3 is not three seeds."""
    code, _, err = command("small", "--seed", "3")
    assert code == 2
    assert "unrecognized arguments: --seed" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["boba_mnist"], "boba_mnist is an experiment and has no table; train it: "),
        (["smal"], "there is no table smal; did you mean small? valid: small."),
        (["small", "--rows", "Bob"], "there is no row Bob;"),
        (["small", "--columns", "imp"], "there is no column imp;"),
        (["small", "--seeds", "x"], "--seeds needs how many (3) or which (0,1,2; one alone: 7,), got 'x'."),
        (["small", "--scale", "0"], "--scale must be above 0 and finite, got 0."),
        (["small", "--scale", "inf"], "--scale must be above 0 and finite, got inf."),
        (["small", "--twins", "f=1"], "--twins needs a share from 0 to 1, got 'f=1'; settings come before it."),
        (["--twins", "small"], "--twins needs a share from 0 to 1, got 'small'."),
        (["small", "twin=1"], "a table's runs have this from --twins, got twin=...; leave it out."),
        (["small", "--twins", "1.5"], "--twins needs a share from 0 to 1, got '1.5'."),
        (["small", "--prune"], "--prune drops rows of the kept file and needs --keep; give both, or neither."),
        (["small", "--workers", "0"], "--workers must be at least 1, got 0."),
        (["small", "server.rate=1"], "there is no setting server.rate;"),
    ],
)
def test_errors_are_one_line(command, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert err.startswith(f"Error: {message}"), err


def test_an_installed_package_keeps_nothing(command, monkeypatch):
    monkeypatch.setattr(options, "IN_CHECKOUT", False)
    code, _, err = command("small", "--keep", "--dry-run")
    assert code == 2
    assert "--keep writes into scripts/tables of a checkout" in err


@pytest.mark.slow
def test_a_grid_that_is_stopped_goes_on(command, tmp_path, monkeypatch):
    """Two real runs: one killed after its first checkpoint, as if the machine had failed."""
    cells = ["small", "--columns", "Acc", "--workers", "2", "checkpoint_every=1"]
    train = runner.Processes.train

    def kill_boba(self, run):
        future = train(self, run)
        if "aggregator=boba" in run.overrides and not (run.folder / "checkpoints").exists():
            while not (run.folder / "checkpoints" / "last.ckpt").exists() and not future.done():
                pass
            for process in self.busy[future]._processes.values():
                process.kill()
            wait([future])
            (run.folder / "summary.json").unlink(missing_ok=True)
        return future

    monkeypatch.setattr(runner.Processes, "train", kill_boba)
    code, out, _ = command(*cells)
    assert code == 1
    assert "1 failed] Acc, BOBA, seed 0: failed: " in out
    report = tmp_path / "runs" / "small"
    assert "1 of 9 cells measured" in report.with_suffix(".md").read_text()
    code, out, _ = command(*cells, "--keep")
    assert (code, out.splitlines()[1]) == (0, "1 run to do")
    rows = list(csv.DictReader(report.with_suffix(".csv").read_text().splitlines()))
    assert [(row["row"], row["column"], row["seed"], row["rounds"]) for row in rows] == [
        (row, column, "0", "3") for row in ("Average", "BOBA") for column in ("Acc", "MRD")
    ]
    assert report.with_suffix(".png").exists()
    kept = tmp_path / "tables" / "measured" / f"{report.name}.csv"
    assert list(csv.DictReader(kept.read_text().splitlines())) == [
        {name: value for name, value in row.items() if name != "key"} for row in rows
    ]


@pytest.mark.parametrize(("told", "expected"), [((), 130), (("stopped by SIGTERM",), 143)])
def test_a_signal_keeps_what_is_finished(command, tmp_path, monkeypatch, told, expected):
    def interrupted(self, planned):
        finish(planned[0].folder, [(10, 90.0)])
        yield runner.Outcome(planned[0], planned[0].summary(), seconds=1.0)
        raise KeyboardInterrupt(*told)

    monkeypatch.setattr(runner.Runner, "train", interrupted)
    code, out, err = command("small")
    assert code == expected
    assert "Stopped; the same command goes on from here." in err
    assert "[1/6] Acc, Average, seed 0: 90.0 % in 1 s; about 5 s left" in out
    row = r" +- +- +- +- +-\n"
    assert re.search(rf"\n +Acc +MRD +IPM +LIE +Wst\n  -+\n  Average +90\.0 +- +- +- +-\n +BOBA{row}\nReport: ", out)
    assert "1 of 9 cells measured" in (tmp_path / "runs" / "small.md").read_text()
