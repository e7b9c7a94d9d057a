"""One row per round, in plain CSV."""

import csv
import pickle
import shutil

import pytest
import pytorch_lightning as pl
import torch

from lightning_fl import DataError, Federation
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.callback.record import Record, Table
from lightning_fl.callback.round_checkpoint import RoundCheckpoint
from lightning_fl.contract import world
from tests import training


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def timeless(folder):
    """The rows of the metrics, as text, without how long they took."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in read(folder / "metrics.csv")]


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
    """Stops after some rounds, as a person would."""

    def __init__(self, rounds=3):
        self.rounds = rounds

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == self.rounds


def test_where_a_person_stops_a_run_its_checkpoint_has_no_evaluation(tmp_path):
    trainer, record = training.trainer(rounds=9), Record(tmp_path)
    trainer.callbacks += [record, Stop()]
    module = training.fit(trainer)
    assert [row["round"] for row in record.metrics.rows if "accuracy" in row] == [2]
    training.evaluate(trainer, module)
    assert [row["round"] for row in record.metrics.rows if "accuracy" in row] == [2, 3]
    assert [row["accuracy"] != "" for row in read(tmp_path / "metrics.csv")] == [False, True, True]


def test_where_a_person_stops_a_run_at_an_evaluation_its_checkpoint_has_it(tmp_path):
    """As a run that never stopped, which evaluates there."""
    trainer, record = training.trainer(rounds=9), Record(tmp_path)
    trainer.callbacks += [record, Stop(4)]
    module = training.fit(trainer)
    assert [row["round"] for row in record.metrics.rows if "accuracy" in row] == [2, 4]
    assert record.metrics.rows[-1]["accuracy"] == module.evaluation["accuracy"]


def test_an_evaluation_is_that_of_the_last_round_or_needed():
    record = Record(None)
    assert not record.holds({"accuracy": 0.5})
    record.metrics.add({"round": 1, "loss": 0.9, "accuracy": 0.5})
    assert record.holds({"accuracy": 0.5})
    assert not record.holds({"accuracy": 0.75})
    assert not record.holds({})
    record.metrics.add({"round": 2, "loss": 0.8})
    assert not record.holds({"accuracy": 0.5})


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
    assert timeless(tmp_path / "second") == timeless(tmp_path / "whole")
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
    record.metrics.add({"round": 4, "loss": 9.0, "late": 1.0})
    record.metrics.flush()
    record.load_state_dict(state)
    record.metrics.add({"round": 4, "loss": 0.25})
    record.metrics.flush()
    assert record.metrics.path.read_text().splitlines() == ["round,loss", "1,0.5", "2,0.5", "3,0.5", "4,0.25"]


def filled(folder, rounds, **more):
    """A record of so many rounds, in its files."""
    record = Record(folder)
    for i in range(1, rounds + 1):
        record.metrics.add({"round": i, "loss": 1 / i, "learning_rate": 1, "size": 10.0, **more})
        record.weights.add({"round": i, "0": 0.1 * i, "7": -1e-300})
    for table in (record.metrics, record.weights):
        table.flush()
    return record


def test_a_checkpoint_does_not_grow(tmp_path):
    small, large = (filled(tmp_path / str(rounds), rounds).state_dict() for rounds in (10, 5000))
    sizes = [len(pickle.dumps(state)) for state in (small, large)]
    assert abs(sizes[1] - sizes[0]) < 20  # digits


def test_rows_come_back_from_the_file_as_they_were(tmp_path):
    record = filled(tmp_path, 8, diagnostic=float("nan"), large=float("inf"))
    kept, text = [*record.metrics.rows], record.metrics.path.read_bytes()
    later = Record(tmp_path)
    later.load_state_dict(record.state_dict())
    assert str(later.metrics.rows) == str(kept)  # the same digits and kinds of numbers; NaN too
    assert later.weights.rows == record.weights.rows
    later.metrics.flush()
    assert record.metrics.path.read_bytes() == text


def test_an_evaluation_after_the_checkpoint_does_not_come_back(tmp_path):
    record = filled(tmp_path, 3)
    state = record.state_dict()
    record.metrics.complete({"accuracy": 0.5})
    record.metrics.flush()
    later = Record(tmp_path)
    later.load_state_dict(state)
    assert "accuracy" not in later.metrics.rows[-1]
    later.metrics.flush()
    assert "accuracy" not in later.metrics.path.read_text()


def test_a_run_that_was_moved_goes_on(tmp_path):
    whole = training.fit(training.trainer([Record(tmp_path / "whole")], rounds=6))
    trainer = training.trainer([Record(tmp_path / "first")], rounds=3)
    training.fit(trainer)
    trainer.save_checkpoint(tmp_path / "first/checkpoints/last.ckpt")
    (tmp_path / "first").rename(tmp_path / "moved")
    checkpoint = tmp_path / "moved/checkpoints/last.ckpt"
    resumed = training.fit(training.trainer([Record(tmp_path / "on")], rounds=6), ckpt_path=checkpoint)
    assert timeless(tmp_path / "on") == timeless(tmp_path / "whole")
    assert torch.equal(resumed.model.weight, whole.model.weight)


def test_without_its_files_a_run_goes_on_and_says_so(tmp_path, capsys):
    trainer = training.trainer([Record(tmp_path / "first")], rounds=3)
    training.fit(trainer)
    trainer.save_checkpoint(tmp_path / "alone.ckpt")
    shutil.rmtree(tmp_path / "first")
    training.fit(training.trainer([Record(tmp_path / "on")], rounds=5), ckpt_path=tmp_path / "alone.ckpt")
    assert "metrics.csv is not beside the checkpoint: its first 3 rows are lost." in capsys.readouterr().err
    assert [row["round"] for row in read(tmp_path / "on/metrics.csv")] == ["4", "5"]


def halve(content):
    return content[: len(content) // 2]


@pytest.mark.parametrize("name", ["metrics.csv", "weights.csv"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        halve,
        lambda content: bytes(len(content)),
        lambda content: content.replace(b"\r\n2,", b"\r\n2\xff,"),
        lambda content: content.replace(b"\r\n2,", b"\r\n2x,"),
        lambda content: content.replace(b"\r\n2,", b"\r\n"),
        lambda content: content.replace(b"\r\n2,", b"\r\n2,2,"),
        lambda content: b"name,score\r\n" + b"ada,1\r\n" * 9,
    ],
    ids=["empty", "cut", "zeroed", "not text", "no number", "too few", "too many", "another file"],
)
def test_damaged_files_are_named(tmp_path, name, damage):
    state = filled(tmp_path, 4).state_dict()
    path = tmp_path / name
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    with pytest.raises(DataError, match=f"{name} does not hold the 4 rows.*remove it to go on without") as error:
        Record(tmp_path).load_state_dict(state)
    assert "\n" not in str(error.value)


def test_the_file_of_another_run_is_not_taken(tmp_path):
    state = filled(tmp_path, 4).state_dict()
    shutil.rmtree(tmp_path)
    filled(tmp_path, 9, other=1.0).metrics.path.write_text("round,loss\r\n" + "4,9.5\r\n" * 9)
    with pytest.raises(DataError, match=r"damaged or of another run"):
        Record(tmp_path).load_state_dict(state)


def test_every_row_before_a_checkpoint_is_in_the_files(tmp_path):
    """No evaluation has written them."""
    record = Record(tmp_path)
    record.on_exception = lambda *_: None  # as a kill
    callbacks = [record, RoundCheckpoint(tmp_path / "last.ckpt", 2), Crash(3, RuntimeError("killed"))]
    trainer = training.trainer(callbacks, rounds=5, limit_val_batches=0, enable_checkpointing=True)
    with pytest.raises(RuntimeError, match="killed"):
        training.fit(trainer)
    assert [row["round"] for row in read(tmp_path / "metrics.csv")] == ["1", "2"]
    assert len(read(tmp_path / "weights.csv")) == 2


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match=r"taken/metrics.csv cannot be written: .*; fix that, then run this again"):
        training.fit(training.trainer([Record(tmp_path / "taken")], rounds=3))


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


class Believing(Average):
    """Plain averaging that takes client i to hold (round, i, 0) of the classes."""

    def aggregate(self, updates, server):
        made = super().aggregate(updates, server)
        believed = torch.tensor([[float(server.round.index + 1), float(i), 0.0] for i in updates.ids])
        return Aggregation(made.update, made.weights, label_distributions=believed)


def test_what_the_rule_has_estimated_last_survives_resuming(tmp_path):
    federation = Federation(4, 0, "supplement", "uniform", participation=0.5)

    def run(folder, rounds, **resumed):
        record = Record(tmp_path / folder)
        trainer = training.trainer([record, Believing()], rounds)
        training.fit(trainer, data_=training.data(federation), **resumed)
        return trainer, record

    trainer, _ = run("first", 3)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = run("second", 4, ckpt_path=tmp_path / "half.ckpt")
    _, whole = run("whole", 4)
    assert resumed.label_distributions == whole.label_distributions
    last = {}
    for index in range(4):
        last |= dict.fromkeys(federation.participants(index)[0], index + 1)
    assert whole.label_distributions == {i: [t, i, 0] for i, t in last.items()}
    assert len(set(last.values())) > 1  # some were absent in the last round


def test_the_initial_model_is_measured_once(tmp_path):
    """Sample by sample, by hand; a run that goes on from a checkpoint keeps what was measured."""
    test, model = training.data().load()[1], world.model()
    right = [[], [], []]
    for x, y in zip(test.inputs, test.targets, strict=True):
        right[y].append(int(model(x[None]).argmax()) == int(y))
    expected = {"accuracy": round(sum(map(sum, right)) / 9, 6)}
    expected |= {f"recall/{z}": round(sum(found) / len(found), 6) for z, found in enumerate(right)}
    record = Record(tmp_path / "first")
    trainer = training.trainer([record], rounds=2)
    module = training.fit(trainer)
    assert record.first == expected
    assert module.training
    assert module.measured() == module.evaluation != expected
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    later = Record(tmp_path / "second")
    training.fit(training.trainer([later], rounds=4), ckpt_path=tmp_path / "half.ckpt")
    assert later.first == expected
    assert [row["round"] for row in later.metrics.rows] == [1, 2, 3, 4]
