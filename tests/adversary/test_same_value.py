import torch

from lightning_fl.contract import conf


def test_every_coordinate_is_the_value():
    for name, value in [("same_value", 1.0), ("zero", 0.0)]:
        assert conf.make("adversary", name)(torch.ones(3, 2), 2).tolist() == [[value, value]] * 2
    assert conf.make("adversary", "same_value", value=-0.5)(torch.ones(3, 1), 1).item() == -0.5
