import torch
import torch.nn.functional as F

from lightning_fl.adversary.bit_flip import BitFlip
from lightning_fl.contract import world


def test_sends_the_opposite_of_its_own_honest_update():
    """By autograd on the clients' own samples; the honest clients' updates play no part."""
    context = world.context()
    forged = BitFlip(10.0).attack(world.updates(), 3, context)
    for row, indices in zip(forged, context.byzantine.indices, strict=True):
        model, samples = world.model(), context.byzantine.samples
        F.cross_entropy(model(samples.inputs[indices]), samples.targets[indices]).backward()
        torch.testing.assert_close(row, -10 * torch.cat([p.grad.flatten() for p in model.parameters()]))
