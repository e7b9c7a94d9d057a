from itertools import product

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.lfighter import Lfighter
from lightning_fl.server_oracle import GivenServer
from lightning_fl.updates.columns import Layer

C, H = 4, 3
LAYOUT = (Layer("first", 0, 5, 2), Layer("out.weight", 5, 5 + C * H, 2), Layer("out.bias", 5 + C * H, 5 + C * H + C, 1))


def loop(x, weights=None):
    """The mean of those who stay, and who that is: every way to part them in two is tried."""
    m = len(x)
    matrix, bias = x[:, 5 : 5 + C * H].reshape(m, C, H), x[:, 5 + C * H :]
    change = [sum(np.linalg.norm(matrix[i, c]) + abs(bias[i, c]) for i in range(m)) for c in range(C)]
    two = sorted(range(C), key=lambda c: change[c])[-2:]
    points = matrix[:, two].reshape(m, -1)

    def cost(group):
        return sum(float(((points[i] - points[group].mean(0)) ** 2).sum()) for i in group)

    def dissimilarity(group):
        least = []
        for i in group:
            others = [
                points[i] @ points[j] / np.linalg.norm(points[i]) / np.linalg.norm(points[j]) for j in group if j != i
            ]
            least.append(min([0.0, *others]))
        return len(group) / m * (1 - sum(least) / len(least))

    groups = []
    for second in product([0, 1], repeat=m - 1):
        if any(second):
            groups.append([[i for i, k in enumerate((0, *second)) if k == which] for which in (0, 1)])
    first, second = min(groups, key=lambda pair: cost(pair[0]) + cost(pair[1]))
    kept = second if dissimilarity(first) < dissimilarity(second) else first
    shares = np.array([1.0 if weights is None else weights[i] for i in kept])
    return shares / shares.sum() @ x[kept], kept


def ask(x, weights=None, layout=LAYOUT, n_classes=C):
    weights = None if weights is None else torch.tensor(weights)
    return Lfighter().aggregate(Updates(x, weights, layout=layout), GivenServer(torch.zeros(n_classes, x.shape[1])))


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_the_loop(seed):
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((9, LAYOUT[-1].stop))
    x[:3, 5:11] += 3 * draw.standard_normal(6)  # attackers push two classes the same way
    for weights in (None, np.arange(1.0, 10)):
        expected, kept = loop(x, weights)
        found = ask(torch.tensor(x), weights)
        assert found.trusted.nonzero().flatten().tolist() == kept
        np.testing.assert_allclose(found.update.numpy(), expected, rtol=1e-12, atol=1e-14)


def test_those_who_do_the_same_go():
    """Three of seven move classes 0 and 1 the same way; the others each in their own."""
    x = torch.zeros(7, 5 + C * H + C)
    x[:3, 5:11] = 5.0
    x[3:, 5:11] = torch.tensor([[1, 0, 0, 0, 0, -1], [-1, 0, 0, 0, 1, 0], [0, 1, 0, -1, 0, 0], [0, -1, 0, 0, 0, 1]])
    x[:, 0] = torch.arange(7)
    found = ask(x)
    assert found.trusted.nonzero().flatten().tolist() == [3, 4, 5, 6]
    assert found.update[0] == 4.5
    assert found.diagnostics == {"kept": 4}


def test_equal_updates_all_stay():
    assert ask(torch.ones(5, LAYOUT[-1].stop)).diagnostics == {"kept": 5}
    assert ask(torch.ones(1, LAYOUT[-1].stop)).diagnostics == {"kept": 1}


def test_without_a_bias_and_with_two_classes_the_matrix_counts(draw):
    x = torch.randn(6, 11, generator=draw)
    x[:2] = -9
    layout = (Layer("first", 0, 5, 2), Layer("out.weight", 5, 11, 2))
    assert ask(x, layout=layout, n_classes=2).trusted[2:].all()


def test_a_model_without_an_output_matrix_is_refused(draw):
    x = torch.randn(6, 11, generator=draw)
    with pytest.raises(SettingError, match=r"one row for each of 4 classes, got \['a', 'b'\]"):
        ask(x, layout=(Layer("a", 0, 6, 2), Layer("b", 6, 11, 1))[:2], n_classes=4)


def test_broken_updates_are_left_out(draw):
    x = torch.randn(8, LAYOUT[-1].stop, generator=draw)
    expected = ask(x[2:]).update
    x[0, 3], x[1] = torch.nan, torch.inf
    torch.testing.assert_close(ask(x).update, expected)
