"""One row a round, in plain CSV."""

import csv

import pytest
import pytorch_lightning as pl
import torch

from lightning_fl import Federation
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.callback.record import Record, Table
from tests import training


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Crash(pl.Callback):
    """Raises in a round."""

    def __init__(self, at, error):
        self.at, self.error = at, error

    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == self.at:
            raise self.error


class Unweighted(Aggregator):
    """The plain mean, as a rule that is not a weighting."""

    def aggregate(self, updates, server):
        return Aggregation(updates.rows.mean(0), diagnostics={"n": updates.n})


def test_a_run_has_one_row_a_round(tmp_path):
    record = Record(tmp_path)
    federation = Federation(4, 2, "supplement", "uniform")
    module = training.fit(training.trainer([record, Ipm(1.0)], rounds=5), data_=training.data(federation))
    rows = read(tmp_path / "metrics.csv")
    assert [row["round"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [float(row["loss"]) for row in rows] == [row["loss"] for row in record.metrics.rows]
    assert all(float(row["learning_rate"]) == 0.1 for row in rows)
    assert [bool(row["accuracy"]) for row in rows] == [False, True, False, True, False]  # evaluated every second round
    assert float(rows[3]["accuracy"]) == module.evaluation["accuracy"]
    assert {"recall/0", "recall/1", "recall/2", "update_norm", "weight/honest", "weight/byzantine"} <= rows[0].keys()
    weights = read(tmp_path / "weights.csv")
    assert list(weights[0]) == ["round", "0", "1", "2", "3", "4", "5"]
    assert len(weights) == 5
    assert all(float(row[str(i)]) == pytest.approx(1 / 6) for row in weights for i in range(6))


def test_replaced_clients_keep_their_numbers(tmp_path):
    data = training.data(Federation(4, 1, "replacement", "samples"))
    training.fit(training.trainer([Record(tmp_path), Ipm(1.0)], rounds=1), data_=data)
    (row,) = read(tmp_path / "weights.csv")
    sizes = data.clients.sizes
    assert [float(row[str(i)]) for i in range(4)] == pytest.approx([size / 18 for size in sizes])


def test_a_test_after_training_completes_the_last_row(tmp_path):
    record = Record(tmp_path)
    trainer = training.trainer([record], rounds=3)
    module = training.fit(trainer)
    assert read(tmp_path / "metrics.csv")[-1]["accuracy"] == ""
    training.evaluate(trainer, module)
    rows = read(tmp_path / "metrics.csv")
    assert len(rows) == 3
    assert float(rows[-1]["accuracy"]) == module.evaluation["accuracy"]


def test_a_rule_that_is_no_weighting_has_no_weights(tmp_path):
    training.fit(training.trainer([Record(tmp_path), Unweighted()], rounds=2))
    assert not (tmp_path / "weights.csv").exists()
    rows = read(tmp_path / "metrics.csv")
    assert "weight/honest" not in rows[0]
    assert [float(row["aggregator/n"]) for row in rows] == [4, 4]


class Diverging(Average):
    """Plain averaging until round 4."""

    def aggregate(self, updates, server):
        made = super().aggregate(updates, server)
        return Aggregation(made.update / 0, made.weights) if server.round.index == 3 else made


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_a_run_that_breaks_off_keeps_its_rows(error, tmp_path):
    trainer = training.trainer([Record(tmp_path), Crash(3, error)], rounds=9)
    with pytest.raises((RuntimeError, SystemExit, KeyboardInterrupt)), training.interrupts():
        training.fit(trainer)
    assert [row["round"] for row in read(tmp_path / "metrics.csv")] == ["1", "2", "3"]
    assert len(read(tmp_path / "weights.csv")) == 3


class Stop(pl.Callback):
    """Stops after three rounds, as a person would."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == 3


def test_where_a_person_stops_a_run_its_checkpoint_has_no_evaluation(tmp_path):
    trainer, record = training.trainer(rounds=9), Record(tmp_path)
    trainer.callbacks += [record, Stop()]
    module = training.fit(trainer)
    assert [row["round"] for row in record.metrics.rows if "accuracy" in row] == [2]
    training.evaluate(trainer, module)
    assert [row["round"] for row in record.metrics.rows if "accuracy" in row] == [2, 3]
    assert [row["accuracy"] != "" for row in read(tmp_path / "metrics.csv")] == [False, True, True]


def test_a_diverged_round_has_no_row(tmp_path):
    module = training.fit(training.trainer([Record(tmp_path), Diverging()], rounds=9))
    assert module.diverged
    assert [row["round"] for row in read(tmp_path / "metrics.csv")] == ["1", "2", "3"]
    assert len(read(tmp_path / "weights.csv")) == 3


def test_the_files_of_a_resumed_run_start_at_its_first_round(tmp_path):
    trainer = training.trainer([Record(tmp_path / "first")], rounds=3)
    training.fit(trainer)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    training.fit(training.trainer([Record(tmp_path / "second")], rounds=6), ckpt_path=tmp_path / "half.ckpt")
    training.fit(training.trainer([Record(tmp_path / "whole")], rounds=6))
    timeless = [
        [
            [value for name, value in row.items() if "seconds" not in name]
            for row in read(tmp_path / run / "metrics.csv")
        ]
        for run in ("second", "whole")
    ]
    assert timeless[0] == timeless[1]
    state = torch.load(tmp_path / "half.ckpt", weights_only=False)["callbacks"]["Record"]
    later = Record(tmp_path / "third")
    assert later.seconds < state["seconds"]
    later.load_state_dict(state)
    assert later.seconds > state["seconds"] > 0
    assert read(tmp_path / "second" / "weights.csv") == read(tmp_path / "whole" / "weights.csv")


def test_a_record_that_goes_back_to_a_checkpoint_forgets_what_came_after(tmp_path):
    record = Record(tmp_path)
    for i in range(1, 4):
        record.metrics.add({"round": i, "loss": 0.5})
    state = record.state_dict()
    record.metrics.add({"round": 4, "loss": 9.0})
    record.metrics.flush()
    assert [row["round"] for row in state["metrics"]] == [1, 2, 3]  # a checkpoint does not grow
    record.load_state_dict(state)
    record.metrics.add({"round": 4, "loss": 0.25})
    record.metrics.flush()
    assert [(row["round"], row["loss"]) for row in read(tmp_path / "metrics.csv")] == [
        ("1", "0.5"),
        ("2", "0.5"),
        ("3", "0.5"),
        ("4", "0.25"),
    ]


def test_a_table_writes_rows_once_and_all_anew_for_a_new_column(tmp_path):
    table = Table(tmp_path / "new" / "table.csv")
    table.flush()
    assert not table.path.exists()  # nothing to say
    table.add({"round": 1, "loss": 0.5})
    table.add({"round": 2, "loss": 0.25})
    table.flush()
    assert table.path.read_text().splitlines() == ["round,loss", "1,0.5", "2,0.25"]
    written = table.path.stat()
    table.flush()
    assert table.path.stat().st_mtime_ns == written.st_mtime_ns
    with table.path.open("a") as file:
        file.write("kept\n")
    table.add({"round": 3, "loss": 0.125})
    table.flush()  # appended
    assert table.path.read_text().splitlines() == ["round,loss", "1,0.5", "2,0.25", "kept", "3,0.125"]
    table.add({"round": 4, "accuracy": 1.0})
    table.flush()
    expected = ["round,loss,accuracy", "1,0.5,", "2,0.25,", "3,0.125,", "4,,1.0"]
    assert table.path.read_text().splitlines() == expected


def test_completing_a_row_that_is_written_already(tmp_path):
    table = Table(tmp_path / "table.csv")
    table.add({"round": 1, "accuracy": 0.5})
    table.add({"round": 2})
    table.flush()
    table.complete({"accuracy": 0.75})
    table.flush()
    assert table.path.read_text().splitlines() == ["round,accuracy", "1,0.5", "2,0.75"]
    table.add({"round": 3})
    table.complete({"accuracy": 1.0})
    table.flush()
    assert table.path.read_text().splitlines() == ["round,accuracy", "1,0.5", "2,0.75", "3,1.0"]


def test_numbers_survive_the_file(tmp_path):
    table = Table(tmp_path / "table.csv")
    values = [1 / 3, 1e-300, float("inf"), 0.1 + 0.2]
    for value in values:
        table.add({"loss": value})
    table.flush()
    assert [float(row["loss"]) for row in read(table.path)] == values
