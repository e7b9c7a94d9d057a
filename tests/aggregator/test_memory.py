"""The law about what a rule remembers."""

import pytest

from lightning_fl.aggregator.average import Average
from lightning_fl.contract import test_aggregator as laws


class Momentum(Average):
    """Averaging with momentum, which it remembers from round to round, and saves or not."""

    def __init__(self, saves):
        self.saves, self.m, self.last = saves, 0, 0

    def aggregate(self, updates, server):
        result = super().aggregate(updates, server)
        self.last = 0.5 * self.m + result.update
        return type(result)(self.last)

    def on_train_batch_end(self, *args):
        self.m = self.last

    def state_dict(self):
        return {"m": self.m} if self.saves else {}

    def load_state_dict(self, state):
        self.m = state.get("m", 0)


def test_a_rule_that_remembers_without_saving_it_is_found_out(monkeypatch):
    monkeypatch.setattr(laws, "make", lambda name: Momentum(saves=True))
    laws.test_its_memory_goes_on_from_a_checkpoint("mine")
    monkeypatch.setattr(laws, "make", lambda name: Momentum(saves=False))
    with pytest.raises(AssertionError):
        laws.test_its_memory_goes_on_from_a_checkpoint("mine")
