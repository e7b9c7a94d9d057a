from copy import deepcopy

import numpy as np
import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.centred_clipping import CentredClipping
from lightning_fl.aggregator.clipping import Clipping
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.geometric_median import GeometricMedian
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.lasa import Lasa
from lightning_fl.aggregator.layerwise import Layerwise
from lightning_fl.aggregator.meamed import Meamed
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.rejection import Zeno
from lightning_fl.aggregator.signguard import Signguard
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import world
from lightning_fl.server_oracle import GivenServer
from lightning_fl.updates.columns import Layer
from tests.aggregator import reference
from tests.aggregator import reference_field as field

LAYOUT = (Layer("A", 0, 6, 2), Layer("a", 6, 8, 1), Layer("B", 8, 10, 2))
MODULES = (Layer("fc.weight", 0, 6, 2), Layer("out.weight", 6, 8, 2), Layer("fc.bias", 8, 10, 1))


def ask(rule, x, layout=LAYOUT, server=None, **settings):
    updates = Updates(torch.as_tensor(x), ids=range(len(x)), layout=layout)
    return Layerwise(rule, **settings).aggregate(updates, server or GivenServer(None))


def test_krum_picks_by_tensor():
    """The same row would be whole Krum's in every tensor."""
    picks = [int(np.argmin(reference.krum_scores(field.V[:, layer.start : layer.stop], 1))) for layer in LAYOUT]
    assert len(set(picks)) > 1
    expected = np.concatenate([field.V[i, layer.start : layer.stop] for i, layer in zip(picks, LAYOUT, strict=True)])
    found = ask(Krum(1), field.V)
    np.testing.assert_allclose(found.update, expected)
    trust = sum(layer.size / 10 * np.eye(6)[i] for i, layer in zip(picks, LAYOUT, strict=True))
    np.testing.assert_allclose(found.trust, trust)


def test_distances_are_those_of_the_tensor():
    for rule, loop in [
        (GeometricMedian(1e-9), lambda x: reference.geometric_median(x, np.full(6, 1 / 6))),
        (Clipping(Average(), 1.0), lambda x: reference.clipped(x, 1.0).mean(0)),
    ]:
        expected = np.concatenate([loop(field.V[:, layer.start : layer.stop]) for layer in LAYOUT])
        np.testing.assert_allclose(ask(rule, field.V).update, expected, atol=1e-6)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(1), Meamed(1), Average()])
def test_rules_by_coordinate_are_as_they_were(rule):
    x = torch.as_tensor(field.V)
    for layout in (LAYOUT, MODULES, None):
        torch.testing.assert_close(ask(rule, x, layout).update, rule(x))


def test_a_module_s_tensors_are_asked_about_together():
    """Also where others lie between them."""
    x = field.V
    fc, out = [*range(6), 8, 9], [6, 7]
    expected = np.empty(10)
    for columns in (fc, out):
        expected[columns] = reference.krum(x[:, columns], 1)
    np.testing.assert_allclose(ask(Krum(1), x, MODULES, groups="module").update, expected)


def test_a_row_broken_anywhere_is_left_out_everywhere():
    x = field.V.copy()
    expected = ask(GeometricMedian(), x[1:]).update
    x[0, 7] = np.nan
    found = ask(GeometricMedian(), x)
    torch.testing.assert_close(found.update, expected)
    assert found.trust[0] == 0


def test_each_tensor_has_a_memory_of_its_own():
    """As rules on the tensors alone have; also from a checkpoint, and a trial call leaves no trace."""
    alone = {layer.name: CentredClipping(0.5) for layer in LAYOUT}
    rule = Layerwise(CentredClipping(0.5))
    for t in range(3):
        x = torch.as_tensor(field.V + t)
        expected = []
        for layer in LAYOUT:
            found = alone[layer.name].aggregate(Updates(x[:, layer.start : layer.stop]), world.oracle())
            alone[layer.name].on_train_batch_end()
            expected.append(found.update)
        rule.aggregate(Updates(x - 7, layout=LAYOUT), world.oracle())
        found = rule.aggregate(Updates(x, layout=LAYOUT), world.oracle()).update
        rule.on_train_batch_end()
        torch.testing.assert_close(found, torch.cat(expected))
        state, rule = deepcopy(rule.state_dict()), Layerwise(CentredClipping(0.5))
        rule.load_state_dict(state)


def test_what_the_server_knows_is_cut_alike(draw):
    x, own = torch.as_tensor(field.V), torch.randn(10, generator=draw, dtype=torch.float64)
    expected = [Fltrust()(x[:, s.start : s.stop], own[s.start : s.stop]) for s in LAYOUT]
    torch.testing.assert_close(ask(Fltrust(), x, server=GivenServer(own)).update, torch.cat(expected))


def test_draws_are_the_tensor_s_own():
    seen = []

    class Watched(Signguard):
        def aggregate(self, updates, server):
            seen.append((server.derive_seed("x"), int(torch.randint(2**40, (1,), generator=server.generator("x")))))
            return super().aggregate(updates, server)

    ask(Watched(), field.V)
    assert len(set(seen)) == 3


@pytest.mark.parametrize("groups", ["tensor", "module"])
def test_a_rule_that_goes_by_tensors_sees_those_of_its_part(groups):
    layout = MODULES if groups == "module" else LAYOUT
    parts = [[[0, 1, 2, 3, 4, 5], [8, 9]], [[6, 7]]] if groups == "module" else [[[*range(6)]], [[6, 7]], [[8, 9]]]
    dimensions = [[2, 1], [2]] if groups == "module" else [[2], [1], [2]]
    expected = np.empty(10)
    for tensors, kinds in zip(parts, dimensions, strict=True):
        columns, pairs, start = [column for tensor in tensors for column in tensor], [], 0
        for tensor, kind in zip(tensors, kinds, strict=True):
            pairs.append((range(start, start + len(tensor)), kind))
            start += len(tensor)
        expected[columns], _ = field.lasa(field.V[:, columns], pairs, sparsity=0.5)
    found = ask(Lasa(sparsity=0.5), field.V, layout, groups=groups)
    np.testing.assert_allclose(found.update, expected, rtol=1e-12, atol=1e-15)
    assert (found.update == 0).any()


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(SettingError, match="layerwise shows its rule one tensor at a time, Zeno computes losses"):
        Layerwise(Zeno(1))
    for rule in (Lasa(), Layerwise(Krum(1))):
        with pytest.raises(SettingError, match="gas draws its groups across the model's tensors"):
            Gas(rule, 1)
