import pytest
import torch

from lightning_fl import ClientBatch, Round
from lightning_fl.client.gradient import Gradient
from lightning_fl.client.random_mask import RandomMask
from lightning_fl.client.sign import Sign
from lightning_fl.client.top_k import TopK
from lightning_fl.contract import world

ROWS = torch.tensor([[0.9, -1.0, 0.2, 0.5], [0.3, 0.2, -0.4, 0.1], [0.5, -0.5, 0.1, 0.2]])


def sent(client, rows, number=1):
    """What one of two clients sends, round by round."""
    batch = ClientBatch(world.samples(2), [torch.tensor([0])] * 2, [0, 1])
    client.prepare(torch.nn.Linear(4, 1, bias=False), batch)
    for t, row in enumerate(rows):
        given = row[None].clone()
        client.send(given, [number], Round(t, 0.1, 0))
        yield given[0]


def test_what_is_left_out_is_sent_later():
    client = TopK(Gradient(), ratio=0.25)
    expected = [[0, -1, 0, 0], [1.2, 0, 0, 0], [0, 0, 0, 0.8]]
    left = [[0.9, 0, 0.2, 0.5], [0, 0.2, -0.2, 0.6], [0.5, -0.3, -0.1, 0]]
    for row, whole, rest in zip(sent(client, ROWS), expected, left, strict=True):
        torch.testing.assert_close(row, torch.tensor(whole, dtype=torch.float32))
        torch.testing.assert_close(client.error[1], torch.tensor(rest))
    assert not client.error[0].any()


def test_without_feedback_each_round_is_by_itself():
    rows = list(sent(TopK(Gradient(), ratio=0.5, feedback=False), ROWS))
    assert [row.nonzero().flatten().tolist() for row in rows] == [[0, 1], [0, 2], [0, 1]]
    ties = torch.tensor([[1.0, -2.0, 2.0, 2.0]])
    assert next(sent(TopK(Gradient(), ratio=0.5, feedback=False), ties)).tolist() == [0, -2, 2, 0]


@pytest.mark.parametrize(
    ("d", "top", "mask", "own", "sign"),
    [
        (1000, 10 * 42, 320, 384, 1032),
        (2_097_152, 20_971 * 53, 671_072, 671_136, 2_097_184),
        (2_097_153, 20_971 * 54, 671_072, 671_136, 2_097_185),
    ],
)
def test_bits(d, top, mask, own, sign):
    assert Gradient().bits_up(d) == 32 * d
    assert TopK(Gradient(), ratio=0.01).bits_up(d) == top
    assert RandomMask(Gradient(), ratio=0.01).bits_up(d) == mask
    assert RandomMask(Gradient(), ratio=0.01, mask="own").bits_up(d) == own
    assert Sign(Gradient()).bits_up(d) == sign
