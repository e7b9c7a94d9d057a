import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.lie import lie_factor
from lightning_fl.adversary.sparse_hybrid import SparseHybrid, sensitive
from lightning_fl.contract import world
from lightning_fl.updates.columns import Layer
from tests.adversary import reference
from tests.aggregator import reference as literal
from tests.aggregator import reference_field as field

HC = literal.X[:6] - np.array([0.7, 1.2])


class Masked(SparseHybrid):
    """With a given mask."""

    def __init__(self, mask, **settings):
        super().__init__(**settings)
        self.given = torch.tensor(mask).bool()

    def chosen(self, context):
        return self.given


def send(attack, honest, b=2):
    return attack.attack(Updates(torch.as_tensor(honest)), b, world.context())


@pytest.mark.parametrize("sign", ["inv_std", "inv_mean"])
def test_small_problem(sign):
    honest, mask = literal.Z[:5], [0, 0, 1]
    z = lie_factor(5, 2)
    expected = reference.sparse_hybrid(honest, np.array(mask, bool), z, inverse=sign == "inv_mean")
    found = send(Masked(mask, sign=sign), honest)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found, np.tile(expected, (2, 1)), rtol=1e-12)


@pytest.mark.parametrize("cap", ["none", "iqr", "z_score"])
@pytest.mark.parametrize("mask", [[0, 1, 1, 0, 1, 1, 1, 1, 0, 1], [1, 0, 1, 0, 1, 0, 1, 1, 0, 1]])
def test_capped_deviations(mask, cap):
    honest = field.V[:5]
    expected = reference.sparse_hybrid(honest, np.array(mask, bool), 0.5, cap=cap)
    np.testing.assert_allclose(send(Masked(mask, factor=0.5, cap=cap), honest)[0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("honest", "mask", "scale"),
    [
        *[(field.V[:5], [0, 0, 0, 0, 0, 0, 1, 1, 0, 0], scale) for scale in (0.2, 0.5, 1.5)],
        (HC, [1, 0], 0.5),
    ],
)
def test_the_optimised_factor(honest, mask, scale):
    best = reference.best_sparse_factor(honest, np.array(mask, bool), scale)
    expected = reference.sparse_hybrid(honest, np.array(mask, bool), best, scale)
    found = send(Masked(mask, scale=scale, optimised=True), honest)[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_mask_is_of_the_largest_in_each_tensor():
    """ceil(0.3 x 6) = 2 of six, and one of each two; of all ten together, three."""
    saliency = torch.tensor([0.02, -0.5, 0.3, 0.01, 0.4, -0.05, 0.2, 0.1, -0.9, 0.03]).abs()
    layout = (Layer("a", 0, 6, 2), Layer("b", 6, 8, 2), Layer("c", 8, 10, 2))
    assert sensitive(saliency, layout, 0.3).nonzero().flatten().tolist() == [1, 4, 6, 8]
    assert sensitive(saliency, layout, 0.3, "global").nonzero().flatten().tolist() == [1, 4, 8]
    assert not sensitive(saliency, (Layer("bias", 0, 10, 1),), 0.3).any()


def test_the_mask_is_that_of_the_first_model_s_gradient():
    context, attack = world.context(), SparseHybrid(share=0.5)
    model = world.model()
    batch = context.byzantine
    x, y = batch.samples.gather(torch.cat(list(batch.indices)))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    saliency = (model.weight * model.weight.grad).abs().flatten()
    attack.attack(Updates(world.honest_updates(6)), 2, context)
    attack.on_train_batch_end()
    mask = attack.state_dict()["mask"]
    assert set(mask.nonzero().flatten().tolist()) == set(saliency.argsort(descending=True)[:3].tolist())
    with torch.no_grad():
        for parameter in context.model.parameters():
            parameter.mul_(-3).add_(1)
    attack.attack(Updates(world.honest_updates(6)), 2, context)
    assert torch.equal(attack._last["mask"], mask)
