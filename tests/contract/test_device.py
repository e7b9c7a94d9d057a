"""The pretended device obeys the laws of a real one; what CUDA does was looked up in its error messages."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from lightning_fl.contract.device import PretendedDevice

MIXED = "same device|should be either on cpu|values are on the cpu"


@pytest.fixture
def gpu():
    with PretendedDevice() as device:
        yield device


@pytest.mark.parametrize(
    "mix",
    [
        lambda here, there: here + there,
        lambda here, there: here @ there,
        lambda here, there: torch.cat([here, there]),
        lambda here, there: torch.stack([here.sum(), there.sum()]),
        lambda here, there: here[there.long()],
        lambda here, there: here.add_(there.sum()),
        lambda here, there: here.masked_fill(there > 0, 0.0),
        lambda here, there: there.masked_fill(here > 0, 0.0),
        lambda here, there: there.index_select(0, torch.tensor([0])),
        lambda here, there: there.scatter_add(0, torch.tensor([0]), there),
        lambda here, there: there.index_put_((torch.tensor([0, 1]),), here[:2]),
        lambda here, there: torch.where(here > 0, there, 0),
        lambda here, there: nn.functional.linear(there, torch.ones(2, 3)),
        lambda here, there: vmap(grad(lambda x, y: (x * y).sum()))(there, here),
    ],
)
def test_what_mixes_devices_is_refused(gpu, mix):
    with pytest.raises(RuntimeError, match=MIXED):
        mix(torch.ones(3), torch.ones(3, device="cuda"))


def test_a_copy_that_may_be_read_too_early_is_refused(gpu):
    with pytest.raises(RuntimeError, match="need not be there when it is read"):
        torch.ones(3, device=gpu.device).to("cpu", non_blocking=True)


def test_numpy_and_generators_of_the_host_are_refused(gpu):
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        torch.ones(3).cuda().numpy()
    with pytest.raises(RuntimeError, match="'cuda' device type for generator"):
        torch.randn(3, generator=torch.Generator(), device="cuda")


@pytest.mark.parametrize(
    "make",
    [
        lambda x: 2 * x,
        lambda x: x + torch.tensor(1.0),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: x.new_tensor([1.0]),
        lambda x: x.new_zeros(2),
        lambda x: torch.zeros_like(x),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: torch.as_tensor([1.0], device=x.device),
        lambda x: torch.arange(3).to(x),
        lambda x: torch.arange(3).to(x.device, torch.float64),
        lambda x: torch.arange(3).cuda(),
        lambda x: x.to(torch.float64),
        lambda x: deepcopy(x),
        lambda x: nn.utils.rnn.pad_sequence([x, x[:1]]),
        lambda x: torch.empty(3, device="cuda").copy_(torch.ones(3)),
        lambda x: x.view(3, 1).expand(3, 2).T,
    ],
)
def test_results_are_where_the_arguments_are_and_nobody_waits(gpu, make):
    found = make(torch.ones(3, device="cuda"))
    assert found.device == gpu.device
    assert found.is_cuda
    assert gpu.waits == []


@pytest.mark.parametrize(
    "make", [lambda x: x.cpu(), lambda x: x.to("cpu", torch.float64), lambda x: torch.empty(3).copy_(x)]
)
def test_numbers_come_back_while_the_host_waits(gpu, make):
    found = make(torch.ones(3, device="cuda"))
    assert found.device.type == "cpu"
    assert found.tolist() == [1.0, 1.0, 1.0]
    assert len(gpu.waits) == 1


@pytest.mark.parametrize(
    "copy",
    [
        lambda x, gpu: x.to(gpu.device),
        lambda x, gpu: x.cuda(),
        lambda x, gpu: torch.tensor([1.0], device=gpu.device),
        lambda x, gpu: torch.as_tensor(x, device=gpu.device),
        lambda x, gpu: torch.empty(3, device=gpu.device).copy_(x),
        lambda x, gpu: torch.empty(3, device=gpu.device)[x.long()],
    ],
)
def test_copies_to_it_that_wait_are_noted(gpu, copy):
    copy(torch.ones(3), gpu)
    assert gpu.copies == ["<lambda>"]
    assert gpu.waits == []


@pytest.mark.parametrize(
    "copy",
    [
        lambda x, there: x.to(there, non_blocking=True),
        lambda x, there: x.to(there.device, torch.float64, non_blocking=True),
        lambda x, there: there.copy_(x, non_blocking=True),
        lambda x, there: there + x.sum(),
        lambda x, there: there.clone().to(there),
    ],
)
def test_other_copies_do_not_wait(gpu, copy):
    there = torch.empty(3, device=gpu.device)
    assert copy(torch.ones(3), there).device == gpu.device
    assert gpu.copies == gpu.waits == []


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x[x.argmax()],
        lambda x: torch.equal(x, x),
        lambda x: x.unique(),
        lambda x: x.long().bincount(),
    ],
)
def test_the_host_waits_where_it_looks(gpu, look):
    look(torch.ones(3))
    assert gpu.waits == []
    look(torch.ones(3, device="cuda"))
    assert gpu.waits == ["<lambda>"]


def test_a_model_moves_trains_and_moves_back(gpu):
    model, inputs = nn.Linear(3, 2), torch.ones(4, 3)
    (expected,) = torch.autograd.grad(model(inputs).square().sum(), [model.weight])
    model.to("cuda")
    model(inputs.cuda()).square().sum().backward()
    assert model.weight.grad.device == model.bias.device == gpu.device
    parameters = dict(model.named_parameters())
    per_sample = vmap(grad(lambda p, x: functional_call(model, p, (x,)).square().sum()), (None, 0))
    each = per_sample(parameters, inputs.cuda())["weight"]
    assert each.device == gpu.device
    torch.testing.assert_close(each.sum(0).cpu(), expected)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    assert optimizer.state[model.weight]["exp_avg"].device == gpu.device
    model.cpu()
    model(inputs)


def test_outside_of_it_all_is_as_before():
    event = torch.cuda.Event
    with PretendedDevice():
        assert torch.cuda.Event is not event
    assert torch.cuda.Event is event
    with torch.device("cpu"):
        assert torch.ones(3).device.type == "cpu"
