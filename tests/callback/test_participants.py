"""Who takes part, before the first round."""

import pytest
import torch

from lightning_fl import Federation, Partition, Samples, TensorData
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.krum import Krum
from lightning_fl.callback.participants import Participants, _inputs, participants
from lightning_fl.partition.iid import Iid
from tests import training


class Announcing(Average):
    """Plain averaging that says when it works."""

    def aggregate(self, updates, server):
        print(f"round {server.round.index + 1}")
        return super().aggregate(updates, server)


def test_it_is_printed_once_before_the_first_round(capsys):
    training.fit(training.trainer([Participants(), Announcing()], rounds=2))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Clients    4 honest + no Byzantine client"
    assert "Server     Announcing(), 2 samples of each class" in lines
    assert lines[-2:] == ["round 1", "round 2"]
    assert sum(line.startswith("Clients") for line in lines) == 1


class Fixed(Partition):
    """Samples 0-5 are class 0, 6-11 class 1, 12-17 class 2: client 0 holds 0-6, client 1 7-11, client 2 12-17."""

    def assign(self, targets, n_clients, n_classes, generator):
        return list(torch.arange(18).split([7, 5, 6]))


def described(n_byzantine=0, placement="supplement", server_samples=2, byzantine_data=None):
    """Who takes part, in lines."""
    federation = Federation(3, n_byzantine, placement, "uniform", byzantine_data=byzantine_data)
    data = training.data(federation, Fixed(), server_samples)
    callbacks = [Average(), *([Ipm(10.0)] if n_byzantine else [])]
    return participants(training.fit(training.trainer(callbacks, 2), data_=data)).splitlines()


def test_participants():
    x = training.Corners().load()[0].inputs.flatten().tolist()
    low, high = min(x), max(x)
    assert described(n_byzantine=2) == [
        "Clients    3 honest + 2 Byzantine (Ipm(factor=10.0)), 40.0% of the data weight",
        "Server     Average(), 2 samples of each class",
        "Model      Linear, d = 9",
        "Data       Corners, 18 training and 9 test samples",
        f"           inputs of shape (2,): floats from {low:.3g} to {high:.3g}, as they are",
        "Partition  Fixed(): 5 to 7 samples and 1 to 2 classes per honest client",
        "",
        "  class  samples  held by clients  samples per holder",
        "  ---------------------------------------------------",
        "      0        6                1                   6",
        "      1        6                2              1 to 5",
        "      2        6                1                   6",
    ]


def test_samples_are_those_that_are_trained_on(capsys):
    plain, split = training.data(), training.data()
    split.validation_share, split.server_held_out = 0.25, True
    for data in (plain, split):
        training.fit(training.trainer([Participants()], rounds=1), data_=data)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Data ")]
        counted = f"{sum(data.clients.sizes)} training"
        counted += f", {len(data.validation)} validation" if data.validation else ""
        assert line.endswith(f", {counted} and {len(data.test)} test samples")
    assert sum(plain.clients.sizes) == len(plain.train)
    assert sum(split.clients.sizes) + len(split.validation) + sum(split.server.sizes) == len(split.train)


def test_a_class_without_test_samples_is_told():
    x, y = torch.zeros(9, 2), torch.arange(9) % 3
    data = TensorData((x, y), (x[:2], y[:2]), Iid(), n_clients=3)
    lines = participants(training.fit(training.trainer(), data_=data)).splitlines()
    assert lines[3:6] == [
        "Data       TensorData, 9 training and 2 test samples",
        "           inputs of shape (2,): floats from 0 to 0, as they are",
        "           no test sample of class 2: its recall is not measured",
    ]


@pytest.mark.parametrize(
    ("inputs", "scaling", "told"),
    [
        (torch.zeros(3, 1, 2, 2, dtype=torch.uint8), (), "(1, 2, 2): bytes divided by 255"),
        (
            torch.zeros(3, 1, 2, 2, dtype=torch.uint8),
            ((0.5,), (0.25,)),
            "(1, 2, 2): bytes divided by 255, standardised",
        ),
        (torch.tensor([[-1.5], [0.0], [2.25]]), (), "(1,): floats from -1.5 to 2.25, as they are"),
        (torch.tensor([[0], [4], [19999]]), (), "(1,): whole numbers from 0 to 19,999, as tokens"),
    ],
)
def test_the_inputs_scale_is_told(inputs, scaling, told):
    assert _inputs(Samples(inputs, torch.zeros(3, dtype=torch.int64), 1, *scaling)) == f"inputs of shape {told}"


def test_what_supplementary_attackers_train_on():
    (line, *_) = described(n_byzantine=2, byzantine_data="iid")
    assert line.endswith(", 40.0% of the data weight, each with an iid share of all samples")


def test_replaced_clients_are_not_counted():
    lines = described(n_byzantine=1, placement="replacement", server_samples=0)
    assert lines[0] == "Clients    2 honest + 1 Byzantine (Ipm(factor=10.0)), 33.3% of the data weight"
    assert lines[1] == "Server     Average(), no samples"
    assert lines[-1].split() == ["2", "0", "0", "0"]  # class 2 is lost


def test_without_attack():
    assert described()[0] == "Clients    3 honest + no Byzantine client"


def test_a_rule_beyond_its_guarantee_says_so(capsys):
    training.fit(training.trainer([Krum(1), Participants()], rounds=1))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Server     Krum(f=1, neighbours=n-f-2), 2 samples of each class"
    assert lines[2] == "           no guarantee: needs n >= 2f + 3, has 4 updates for f = 1"
    assert lines[3].startswith("Model ")
