import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.rosdhb import Rosdhb
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import world
from tests.aggregator import reference
from tests.aggregator import reference_field as field


class Given(Rosdhb):
    """With these masks, one each round."""

    def __init__(self, rule, masks, **settings):
        super().__init__(rule, **settings)
        self.masks = masks

    def _drawn(self, updates, server, purpose):
        mask = self.masks[server.round.index]
        return torch.zeros(updates.d).double().index_fill(0, torch.tensor(mask), updates.d / len(mask))


def play(rule, rounds, first=0, ids=None):
    found = []
    for t, x in enumerate(rounds, first):
        server = world.oracle(index=t)
        ids = range(len(x)) if ids is None else ids
        rule.aggregate(Updates(torch.as_tensor(x) * 3, ids=ids), server)
        found.append(rule.aggregate(Updates(torch.as_tensor(x), ids=ids), server).update)
        rule.on_train_batch_end(*[None] * 5)
    return found


@pytest.mark.parametrize(
    ("rounds", "masks", "beta", "inner", "loop"),
    [
        ([field.S, 1 - field.S], [[0, 2], [1, 2]], 0.9, TrimmedMean(1), lambda m: reference.trimmed_mean(m, 1)),
        ([reference.X, reference.X - 1], [[1], [0]], 0.5, Median("mean"), lambda m: np.median(m, axis=0)),
    ],
)
def test_small_problems(rounds, masks, beta, inner, loop):
    expected = field.masked_momenta(rounds, masks, beta)
    rule = Given(inner, masks, momentum=beta)
    for m, found in zip(expected, play(rule, rounds), strict=True):
        np.testing.assert_allclose(found, loop(m), rtol=1e-12, atol=1e-15)
    remembered = torch.stack(list(rule._remembered["momenta"].values()))
    np.testing.assert_allclose(remembered, expected[-1], rtol=1e-12, atol=1e-15)


def test_literal():
    """S's column 0 has the mean 1.1: times d/k = 2 and 0.1, then faded by 0.9."""
    first, second = play(Given(Average(), [[0, 2], [1, 2]]), [field.S, 1 - field.S])
    assert first[0].item() == pytest.approx(0.22)
    assert first[1].item() == 0
    assert second[0].item() == pytest.approx(0.198)


def test_the_mask_is_common_or_own_and_another_one_each_round():
    x = torch.ones(6, 40)
    for mask, shared in [("common", True), ("own", False)]:
        rule = Rosdhb(Average(), 0.25, 0.0, mask)
        seen = []
        for t in (0, 1, 1):
            rule.aggregate(Updates(x, ids=range(6)), world.oracle(index=t))
            seen.append(torch.stack(list(rule._last["momenta"].values())))
            assert ((seen[-1] == 4).sum(1) == 10).all()
        assert torch.equal(seen[1], seen[2])
        assert not torch.equal(seen[0], seen[1])
        assert bool((seen[0] == seen[0][0]).all()) == shared


def test_absent_clients_keep_their_momenta():
    rule = Given(Average(), [[0], [1], [0]])
    play(rule, [reference.X])
    before = rule._remembered["momenta"][6].clone()
    play(rule, [reference.X[:3]], 1, ids=[0, 1, 2])
    assert torch.equal(rule._remembered["momenta"][6], before)
    assert len(rule._remembered["momenta"]) == 7


def test_broken_rows_renew_nothing():
    x, rule = reference.X.copy(), Given(Median(), [[0], [1]])
    play(rule, [x])
    x[2] = np.nan
    play(rule, [x], 1)
    assert all(m.isfinite().all() for m in rule._remembered["momenta"].values())
