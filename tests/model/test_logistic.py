"""Logistic regression without bias, from zero."""

import torch

from lightning_fl import ClientBatch, Samples
from lightning_fl.client.gradient import Gradient
from lightning_fl.model.logistic import Logistic


def test_it_starts_at_zero_and_is_linear(draw):
    model = Logistic(12, 3)
    x = torch.randn(5, 1, 3, 4, generator=draw)
    assert torch.equal(model(x), torch.zeros(5, 3))
    (weight,) = model.parameters()
    with torch.no_grad():
        weight.copy_(torch.randn(3, 12, generator=draw))
    torch.testing.assert_close(model(x), x.reshape(5, 12) @ weight.T)


def test_the_first_gradient_by_hand():
    # All classes have probability 1/3, so the gradient of the logits is 1/3 - y: -2/3 for class 1, 1/3 for the others.
    data = Samples(torch.tensor([[3.0, 6.0]]), torch.tensor([1]), 3)
    result = Gradient(client_chunk=1).gradients(Logistic(2, 3), ClientBatch(data, [torch.tensor([0])], [0]))
    torch.testing.assert_close(result.updates, torch.tensor([[1.0, 2.0, -2.0, -4.0, 1.0, 2.0]]))
