import torch
from torch import nn

from lightning_fl import Updates
from lightning_fl.adversary.search.candidates import Candidates
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.updates.columns import Layer
from lightning_fl.updates.layout import columns_of, layout_of, owners
from lightning_fl.updates.mixed import mix

MODEL = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
MODEL[0].bias.requires_grad_(False)


def test_the_columns_are_those_of_the_flat_vector():
    parameters = trainable(MODEL)
    layout, vector = layout_of(parameters), flatten(parameters.values())
    assert [(layer.name, layer.dimensions) for layer in layout] == [("0.weight", 4), ("2.weight", 2), ("2.bias", 1)]
    for layer, value in zip(layout, parameters.values(), strict=True):
        assert torch.equal(vector[layer.start : layer.stop], value.flatten())
    assert owners(layout, vector.device).tolist() == [0] * 18 + [1] * 24 + [2] * 3
    assert [layer.module for layer in layout] == ["0", "2", "2"]


def test_columns_of_neighbours_and_of_others():
    layout = (Layer("a", 0, 2, 1), Layer("b", 2, 5, 1), Layer("c", 5, 6, 1))
    assert columns_of(layout[:2], torch.device("cpu")) == slice(0, 5)
    assert columns_of(layout[::2], torch.device("cpu")).tolist() == [0, 1, 5]


def test_mixed_rows_and_candidates_keep_the_layout():
    layout = (Layer("a", 0, 1, 1), Layer("b", 1, 3, 1))
    rows = Updates(torch.eye(3), layout=layout)
    assert mix(mix(rows, torch.ones(2, 3)), torch.ones(1, 2)).layout == layout
    assert Candidates(rows, torch.ones(1, 3), 1, torch.ones(4)).by([1.0]).layout == layout
    assert rows.columns(slice(1, 3)).layout == (Layer("", 0, 2, 1),)
    assert Updates(torch.eye(3)).layout == (Layer("", 0, 3, 1),)
