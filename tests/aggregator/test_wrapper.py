import pytest

from lightning_fl import SettingError
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.server_mixture import ServerMixture


def test_refuses_a_rule_with_a_hook_that_nobody_would_call():
    class Eager(Average):
        def on_train_start(self, trainer, pl_module):
            raise AssertionError

    with pytest.raises(SettingError, match="ServerMixture does not call on_train_start of its rule, got Eager with it"):
        ServerMixture(Eager(), 0.5)
    ServerMixture(ServerMixture(Bygars(3, 0.05, True), 0.5), 0.5)
