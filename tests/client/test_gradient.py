"""FedSGD: a client uploads one gradient."""

import pytest
import torch
from torch import nn

from lightning_fl import ClientBatch, Samples
from lightning_fl.client.gradient import Gradient
from lightning_fl.round import Round


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_gradient_by_hand(chunk):
    # At zero weights both classes have probability 1/2, so the loss is log 2 and the gradient of the logits is
    # p - y: (-1/2, 1/2) for class 0 and (1/2, -1/2) for class 1; times the input for the weights, as is for the bias.
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    data = Samples(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1]), 2)
    batch = ClientBatch(data, [torch.tensor([0, 1]), torch.tensor([2])], range(2))
    result = Gradient(client_chunk=chunk).updates(model, batch, Round(0, 0.1, 0))
    # Client 0: the mean over inputs 1 and 3 of class 0.  Client 1: input 5 of class 1.
    expected = torch.tensor([[-1.0, 1.0, -0.5, 0.5], [2.5, -2.5, 0.5, -0.5]])
    torch.testing.assert_close(result.updates, expected)
    torch.testing.assert_close(result.losses, torch.full((2,), 0.693147))
