"""What a client sends is its model, or a reason why it does not count; nothing else happens."""

import io
import struct
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason='needs flwr (pip install "lightning-fl[flower]")')

from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

from lightning_fl.flower.replies import Layout, Refused, gather, median_metrics, read

MODEL = {"w": np.zeros((2, 3), np.float32), "b": np.zeros((), np.float32), "steps": np.zeros(2, np.int64)}


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def stored(value, **settings):
    """An array whose bytes are those of ``numpy.save``, under the label of a (2, 3) matrix of float32."""
    file = io.BytesIO()
    np.save(file, value, **settings)
    return labelled(file.getvalue())


def labelled(data, stype="numpy.ndarray"):
    return Array(dtype="float32", shape=(2, 3), stype=stype, data=data)


def test_a_layout_is_what_holds_floating_point_numbers():
    layout = Layout.of(record(MODEL))
    assert layout.trained == ("w", "b")
    assert layout.statistics == ()
    assert layout.count(layout.trained) == 7
    assert layout.dtype == np.float32
    row = np.empty(7, np.float32)
    arrays = record({"steps": [1, 2], "b": 7.0, "w": np.arange(6.0).reshape(2, 3)})  # in any order
    layout.write(arrays, row, np.empty(0))
    assert row.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert Layout.of(record({"w": np.zeros(2, np.float16)})).dtype == np.float32
    assert Layout.of(record({"w": np.zeros(2, np.float16), "v": np.zeros(2, np.longdouble)})).dtype == np.float64


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_floating_point_number_of_any_byte_order(dtype, order):
    matrix = np.array([[1.5, -2.0, 3.0], [4.0, 5.0, 0.25]], dtype, order=order)
    np.testing.assert_array_equal(read(stored(matrix), (2, 3), "w"), matrix)


def pickled():
    file = io.BytesIO()
    np.save(file, np.array([[print]]), allow_pickle=True)
    return labelled(file.getvalue())


def archive():
    file = io.BytesIO()
    np.savez(file, w=np.zeros((2, 3)))
    return labelled(file.getvalue())


def bomb():
    """A header that asks for 8 TB."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    return labelled(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


HOSTILE = {
    "not in NumPy's format": [
        labelled(b""),
        labelled(b"junk"),
        archive(),
        labelled(b"\x93NUMPY\x09\x00" + bytes(90)),
        labelled(b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 70000),
        labelled(b"\x93NUMPY\x01\x00\x04\x00{1:2"),
    ],
    "has shape": [stored(np.zeros((3, 2))), stored(np.zeros(6)), bomb()],
    "not floating-point": [
        stored(np.zeros((2, 3), int)),
        stored(np.zeros((2, 3), complex)),
        stored(np.zeros((2, 3), "U3")),
    ],
    "bytes, needs 48": [labelled(stored(np.zeros((2, 3))).data[:-1]), labelled(stored(np.zeros((2, 3))).data + b"0")],
}


@pytest.mark.parametrize(("reason", "array"), [(reason, array) for reason, found in HOSTILE.items() for array in found])
def test_other_bytes_are_refused(reason, array):
    with pytest.raises(Refused, match=reason):
        read(array, (2, 3), "w")


def test_pickled_objects_are_not_loaded():
    with pytest.raises(Refused, match=r"has shape \(1, 1\)"):
        read(pickled(), (2, 3), "w")
    with pytest.raises(Refused, match="holds object"):
        read(pickled(), (1, 1), "w")


SENT = torch.tensor([10.0, 10.0])


def asked(node, group="round 3"):
    return Message(RecordDict(), dst_node_id=node, message_type="train", group_id=group)


def reply(node, row, claim=5, group="round 3", arrays="arrays", metrics="num-examples"):
    content = RecordDict({arrays: record({"w": np.array(row, np.float32)}), "m": MetricRecord({metrics: claim})})
    return Message(content, reply_to=asked(node, group))


def collect(*replies, nodes=range(1, 9), learning_rate=1.0, most_examples=None):
    layout = Layout.of(record({"w": np.zeros(2, np.float32)}))
    keys = ("arrays", "num-examples")
    return gather(replies, nodes, "round 3", layout, SENT, learning_rate, keys, most_examples)


def test_updates_are_what_was_sent_minus_what_came_back():
    answers = collect(reply(7, [9.0, 4.0]), reply(2, [10.0, 12.0]), nodes=[2, 5, 7], learning_rate=0.5)
    assert answers.nodes == [2, 7]
    assert answers.rows.tolist() == [[0.0, -4.0], [2.0, 12.0]]
    assert answers.absent == {5: "no reply"}
    assert answers.refused == {}
    updates = answers.updates(refused=True)
    assert updates.ids == [2, 7]
    assert updates.data_weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (reply(2, [1.0, 2.0, 3.0]), r"array w has shape \(3,\), the model's has \(2,\)"),
        (reply(2, [1.0, 2.0], arrays="weights"), "it holds no arrays under 'arrays'"),
        (reply(2, [np.nan, 2.0]), "not all finite"),
        (reply(2, [np.inf, 2.0]), "not all finite"),
        (Message(RecordDict(), reply_to=asked(2)), "it holds no arrays"),
        (Message(RecordDict({"arrays": record({})}), reply_to=asked(2)), "its arrays are not the model's: w"),
        (Message(RecordDict({"arrays": record({"v": [0.0, 0.0]})}), reply_to=asked(2)), "not the model's: v, w"),
        (
            Message(RecordDict({"arrays": record({"w": [0.0, 0.0], "v": 0.0})}), reply_to=asked(2)),
            "not the model's: v$",
        ),
    ],
)
def test_a_reply_that_is_no_model_costs_its_client_only(bad, reason):
    answers = collect(reply(3, [0.0, 0.0]), bad, reply(1, [1.0, 1.0]))
    assert answers.nodes == [1, 2, 3]
    assert list(answers.refused) == [2]
    with pytest.raises(Refused, match=reason):
        raise Refused(answers.refused[2])
    assert answers.rows[[0, 2]].tolist() == [[9.0, 9.0], [10.0, 10.0]]
    assert not answers.rows[1].isfinite().all()
    assert answers.updates(refused=False).ids == [1, 3]
    assert len(answers.contents) == 2


def test_huge_numbers_are_numbers():
    answers = collect(reply(1, [3e38, 3e38]), reply(2, [-3e38, 3e38]))
    assert answers.refused == {}
    assert answers.rows[0].tolist() == torch.tensor([-3e38, -3e38]).tolist()
    double = Message(RecordDict({"arrays": record({"w": np.array([1e300, 0.0])})}), reply_to=asked(4))
    assert collect(double).refused == {4: "its numbers are not all finite"}


def test_late_replies_errors_and_strangers_take_no_part():
    error = Message(Error(code=1, reason="out of memory"), reply_to=asked(4))
    answers = collect(
        reply(2, [0.0, 0.0], group="round 2"), reply(9, [5.0, 5.0]), error, reply(1, [1.0, 1.0]), nodes=[1, 2, 4]
    )
    assert answers.nodes == [1]
    assert answers.absent == {2: "its reply is to another round", 4: "error: out of memory"}


def test_a_late_reply_beside_the_right_one_changes_nothing():
    late, right = reply(2, [0.0, 0.0], group="round 2"), reply(2, [1.0, 1.0])
    for order in ([late, right], [right, late]):
        answers = collect(*order, nodes=[2])
        assert answers.rows.tolist() == [[9.0, 9.0]]
        assert answers.absent == answers.refused == {}


def test_copies_of_a_reply_count_once_and_different_ones_cost_the_client():
    twice = collect(reply(2, [1.0, 2.0]), reply(2, [1.0, 2.0]), nodes=[2])
    assert twice.rows.tolist() == [[9.0, 8.0]]
    for other in (reply(2, [1.0, 2.5]), reply(2, [1.0, 2.0], claim=6), reply(2, [1.0, 2.0, 3.0])):
        for order in ([reply(2, [1.0, 2.0]), other], [other, reply(2, [1.0, 2.0])]):
            answers = collect(*order, reply(3, [0.0, 0.0]), nodes=[2, 3])
            assert answers.refused == {2: "the node sent 2 different replies"}
            assert answers.rows[1].tolist() == [10.0, 10.0]


def test_claims_are_ignored_or_capped():
    lying = [reply(1, [0.0, 0.0], 10), reply(2, [0.0, 0.0], 10**18), reply(3, [0.0, 0.0], 0)]
    assert collect(*lying).updates(refused=True).data_weights.tolist() == [1 / 3] * 3
    assert collect(*lying, most_examples=30).claims.tolist() == [10, 30, 0]
    for claim in (-1, float("nan"), float("inf"), [5, 5], 10**400):
        assert collect(reply(1, [0.0, 0.0], claim)).refused == {}
        found = collect(reply(1, [0.0, 0.0], claim), most_examples=30).refused
        assert found == {1: "its num-examples is not a finite number of at least 0"}
    silent = reply(1, [0.0, 0.0], metrics="loss")
    assert collect(silent).refused == {}
    assert collect(silent, most_examples=30).refused == {1: "it does not say its num-examples"}


def test_metrics_are_medians_of_what_most_clients_report():
    def contents(*metrics):
        return [RecordDict({"m": MetricRecord(found)}) for found in metrics]

    honest = [{"loss": 1.0, "num-examples": 5}, {"loss": 3.0, "num-examples": 5}, {"loss": 2, "num-examples": 5}]
    median = partial(median_metrics, weighted_by_key="num-examples")
    assert dict(median(contents(*honest))) == {"loss": 2.0}
    lying = {"loss": 1e30, "round/skipped": 1, "num-examples": 10**9}
    assert dict(median(contents(*honest, lying))) == {"loss": 2.5}
    for nothing in (float("nan"), 10**400, -(10**5000)):  # a simulation passes integers of any size on
        assert dict(median(contents(*honest, {"loss": nothing}))) == {"loss": 2.0}
    assert dict(median(contents(*honest, {"loss": [1.0]}, {}))) == {"loss": 2.0}
    assert dict(median(contents({}, {"loss": 1.0}))) == {}
