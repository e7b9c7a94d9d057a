"""A frozen transformer with LoRA: what trains, and how much of it."""

import pytest
import torch

import lightning_fl as fl
from lightning_fl.model.lora_text import LoraText
from lightning_fl.network.parameters import trainable

pytest.importorskip("peft")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
# By hand: in each of two layers A (2 x 8) and B (8 x 2) for queries and for values; the head 8 x 3 and 3.
D = 2 * 2 * (2 * 8 + 8 * 2) + 8 * 3 + 3


def small(**settings):
    torch.manual_seed(0)
    return LoraText(vocabulary=9, length=5, width=8, layers=2, heads=2, rank=2, n_classes=3, **settings)


def test_rows_are_as_long_as_what_trains_and_the_rest_stays():
    x = torch.arange(1, 61).reshape(12, 5) % 8 + 1
    data = fl.TensorData((x, torch.arange(12) % 3), (x, torch.arange(12) % 3), n_clients=4, server_samples=0)
    model = small()
    assert sum(value.numel() for value in trainable(model).values()) == D
    run = fl.train(model, data, fl.aggregator.Median(), rounds=2, lr=0.1, progress=False)
    assert run.summary["communication"]["floats_up"] == 2 * 4 * D
    for (name, before), after in zip(model.named_parameters(), run.model.model.parameters(), strict=True):
        assert torch.equal(before, after) != before.requires_grad or "lora_A" in name, name


def test_what_is_computed_once_more_is_the_same():
    x = torch.arange(1, 61).reshape(12, 5) % 8 + 1
    data = fl.TensorData((x, torch.arange(12) % 3), (x, torch.arange(12) % 3), n_clients=4, server_samples=0)
    ends = []
    for checkpointing in (False, True):
        calls, model = [], small(checkpointing=checkpointing)
        first = model.model.base_model.model.bert.encoder.layer[0]
        first.attention.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        run = fl.train(model, data, fl.aggregator.Median(), rounds=2, lr=0.1, progress=False)
        ends.append((len(calls), [value for value in run.model.model.parameters() if value.requires_grad]))
    assert ends[1][0] > ends[0][0]
    for plain, again in zip(ends[0][1], ends[1][1], strict=True):
        torch.testing.assert_close(again, plain)


def test_padding_changes_nothing():
    model = small().eval()
    text = torch.tensor([[3, 4, 0, 0, 0]])
    torch.testing.assert_close(model(text), model(text[:, :2]))


def test_heads_divide_the_width():
    with pytest.raises(fl.SettingError, match="heads that divide its width, got 3 and 8"):
        LoraText(width=8, heads=3)
