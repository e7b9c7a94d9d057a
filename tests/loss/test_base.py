"""The loss that was chosen, the model's own, or else cross-entropy."""

import pytest
import torch
from torch import nn

import lightning_fl as fl
from lightning_fl import SettingError
from lightning_fl.loss.base import mean_loss, minimizing, sample_losses, unburdened
from lightning_fl.loss.focal import Focal


class Distance(nn.Identity):
    """A model whose loss is the distance to the class's number."""

    def sample_losses(self, outputs, targets):
        return (outputs[:, 0] - targets).abs()


OUTPUTS, TARGETS = torch.tensor([[3.0, 1.0], [0.0, 0.0]]), torch.tensor([1, 1])


def test_cross_entropy_by_hand():
    # -log(e / (e^3 + e)) = log(e^2 + 1), and log 2.
    expected = torch.tensor([torch.e**2 + 1, 2.0]).log()
    torch.testing.assert_close(sample_losses(nn.Identity(), OUTPUTS, TARGETS), expected)
    torch.testing.assert_close(mean_loss(nn.Identity(), OUTPUTS, TARGETS), expected.mean())


def test_a_models_own_loss():
    assert sample_losses(Distance(), OUTPUTS, TARGETS).tolist() == [2.0, 1.0]
    assert mean_loss(Distance(), OUTPUTS, TARGETS) == 1.5


def test_a_chosen_loss_leaves_the_given_model_alone():
    model = nn.Sequential(nn.Linear(2, 2))  # which would run a further layer
    judged = minimizing(model, Focal())
    assert not hasattr(model, "sample_losses")
    assert not hasattr(unburdened(minimizing(model, Focal())), "sample_losses")
    assert model.state_dict().keys() == judged.state_dict().keys()
    assert all(a is b for a, b in zip(model.parameters(), judged.parameters(), strict=True))
    assert torch.equal(model(OUTPUTS), judged(OUTPUTS))
    found = sample_losses(judged, OUTPUTS, TARGETS)
    torch.testing.assert_close(found, Focal()(OUTPUTS, TARGETS))
    again = minimizing(judged, lambda outputs, targets: outputs[:, 0])  # another one takes its place
    assert sample_losses(again, OUTPUTS, TARGETS).tolist() == [3.0, 0.0]
    torch.testing.assert_close(sample_losses(judged, OUTPUTS, TARGETS), found)


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (Distance(), Focal(), r"a run has one loss, got Focal and the one that Distance brings \(sample_losses\)"),
        (nn.Identity(), nn.AdaptiveLogSoftmaxWithLoss(4, 3, [2]), "a loss has no parameters of its own"),
        (nn.Identity(), Focal, r"loss must be a function or a module such as fl.loss.Focal\(\), got"),
        (nn.Identity(), "focal", r"loss must be a function or a module such as fl.loss.Focal\(\), got 'focal'"),
    ],
)
def test_what_is_refused(model, loss, message):
    with pytest.raises(SettingError, match=message):
        minimizing(model, loss)


def test_one_loss_per_sample():
    with pytest.raises(SettingError, match=r"CrossEntropyLoss must give one loss per sample, shape \(2,\), got") as no:
        sample_losses(minimizing(nn.Identity(), nn.CrossEntropyLoss()), OUTPUTS, TARGETS)
    assert no.value.part == "loss"


def test_a_run_minimises_what_was_chosen():
    """One round from parameters of 0 at a rate of 1: minus the mean gradient, taken by plain autograd."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    data = fl.TensorData((x, y), (x, y), n_clients=2, partition=[[*range(6)], [*range(6, 12)]])
    weights = [1.0, 3.0]
    twin = nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    losses = nn.functional.cross_entropy(twin(x), y, reduction="none") * torch.tensor(weights)[y]
    losses.mean().backward()
    for loss in (
        fl.loss.CrossEntropy(weights),
        nn.CrossEntropyLoss(torch.tensor(weights), reduction="none"),
        lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none") * (1 + 2 * targets),
    ):
        run = fl.train(model, data, rounds=1, lr=1.0, loss=loss)
        torch.testing.assert_close(run.model.weight, -twin.weight.grad)
        torch.testing.assert_close(run.metrics[0]["loss"], losses.mean().item())
    assert run.config["loss"]["_partial_"] is True
    assert fl.train(model, data, rounds=1, loss=nn.MultiMarginLoss(reduction="none"), precision="64-true").accuracy
    assert "loss" not in fl.train(model, data, rounds=1).config
