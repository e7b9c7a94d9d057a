import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.boba import Boba
from lightning_fl.aggregator.bucketing import Bucketing
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.contract import conf, world


def test_literal():
    """(3/4) 8 + (1/4) (0 + 4) / 2.  Shares swapped would give 3.5, the sum of the classes instead of their mean 7."""
    assert ServerMixture(Average(), 0.25)(torch.tensor([[8.0]]), torch.tensor([[0.0], [4.0]])).tolist() == [6.5]


def test_mixes_the_rules_update_with_the_servers_classes():
    rows, server, rule = world.honest_updates(), world.oracle(), Krum(2)
    mixed = ServerMixture(rule, 0.25).aggregate(Updates(rows), server)
    alone = rule.aggregate(Updates(rows), server)
    torch.testing.assert_close(mixed.update, 0.75 * alone.update + 0.25 * server.class_updates.mean(0))
    torch.testing.assert_close(mixed.weights, 0.75 * alone.weights)
    assert torch.equal(ServerMixture(rule, 0.0).aggregate(Updates(rows), server).update, alone.update)
    whole = ServerMixture(rule, 1.0).aggregate(Updates(rows), server)
    torch.testing.assert_close(whole.update, server.update)  # classes are balanced: the baseline "Server"
    assert whole.weights.tolist() == [0] * 12


def test_checks_the_rule():
    ServerMixture(Krum(2), 0.5).check(12, 3)
    with pytest.raises(SettingError, match="krum needs"):
        ServerMixture(Krum(2), 0.5).check(4, 3)
    assert ServerMixture(Krum(2), 0.5).guarantee(6, 3) == Krum(2).guarantee(6, 3) is not None


def test_the_server_takes_its_share_of_the_trust():
    updates, server = world.updates(), world.oracle()
    mixed = ServerMixture(Normalized(), 0.25).aggregate(updates, server)
    assert mixed.trust.tolist() == pytest.approx([0.75 / updates.n] * updates.n)
    torch.testing.assert_close(mixed.weights, 0.75 * Normalized().aggregate(updates, server).weights)


def test_what_the_rule_believes_of_the_clients_labels_is_passed_on():
    updates, server = world.updates(), world.oracle()
    expected = Boba(2).aggregate(updates, server).label_distributions
    assert torch.equal(ServerMixture(Boba(2), 0.25).aggregate(updates, server).label_distributions, expected)


def test_configuration_takes_any_rule():
    mixture = conf.make("aggregator", "server_mixture")
    assert type(mixture.rule).__name__ == "TrimmedMean"
    assert conf.compose("aggregator=server_mixture", "aggregator.rule.f=3").aggregator.rule.f == 3
    nested = conf.compose("aggregator=server_mixture", "aggregator@aggregator.rule=bucketing_krum").aggregator
    assert nested.rule._target_ == f"{Bucketing.__module__}.Bucketing"
    assert nested.rule.rule._target_ == f"{Krum.__module__}.Krum"
