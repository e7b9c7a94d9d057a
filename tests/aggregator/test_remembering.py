"""What is taken over from one round into the next."""

import pytest
import torch

from lightning_fl import SettingError, Updates
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.aggregator.remembering import Memory, Remembering, RememberingWrapper, clients_of
from lightning_fl.server_oracle import GivenServer


class Counted(Remembering):
    """Answers with the number of rounds before."""

    def aggregate(self, updates, server):
        before = self._remembered.get("rounds", 0)
        self._last = {"rounds": before + 1}
        return Aggregation(torch.full_like(updates.rows[0], before))


class CountedWrapper(RememberingWrapper):
    """Adds the number of rounds before to the rule's answer."""

    def aggregate(self, updates, server):
        before = self._remembered.get("rounds", 0)
        self._last = {"rounds": before + 1}
        return Aggregation(self.rule.aggregate(updates, server).update + before)


def answer(rule):
    return rule.aggregate(Updates(torch.zeros(2, 1)), GivenServer(None)).update.item()


@pytest.mark.parametrize(("make", "each"), [(Counted, 1), (lambda: CountedWrapper(Counted()), 2)])
def test_the_last_call_of_a_round_counts_once_it_is_over(make, each):
    """Both a wrapper's own memory and that of the rule inside it."""
    rule = make()
    assert [answer(rule), answer(rule)] == [0, 0]
    rule.on_train_batch_end(*[None] * 5)
    assert [answer(rule), answer(rule)] == [each, each]
    rule.on_train_batch_end(*[None] * 5)
    again = make()
    again.load_state_dict(rule.state_dict())
    assert answer(again) == answer(rule) == 2 * each


class Halved(Memory, Aggregator):
    """Has a constructor of its own, which calls no other."""

    def __init__(self, named):
        self.named = named

    def aggregate(self, updates, server):
        update = updates.rows[0] + self._remembered.get("update", 0)
        self._last = {"update": update} if self.named else update
        return Aggregation(update)


def test_it_begins_with_nothing_whatever_the_constructor_does():
    rule, other = Halved(True), Halved(True)
    assert torch.equal(rule(torch.ones(2, 1)), torch.ones(1))
    rule.end_round()
    assert torch.equal(rule(torch.ones(2, 1)), torch.full((1,), 2.0))
    assert other.state_dict() == {}


def test_it_remembers_by_names():
    rule = Halved(False)
    rule(torch.ones(2, 1))
    with pytest.raises(SettingError, match=r"Halved needs a dict in self._last, got Tensor; name what it remembers"):
        rule.end_round()


def test_a_wrapper_keeps_its_own_memory_apart():
    rule = CountedWrapper(Average())
    answer(rule)
    assert rule.state_dict()["own"] == {}
    rule.on_train_batch_end(*[None] * 5)
    assert rule.state_dict() == {"own": {"rounds": 1}, "rule": {}}


def test_whose_the_rows_are():
    assert clients_of(Updates(torch.zeros(2, 1), ids=torch.tensor([4, 7])), "mine") == [4, 7]
    with pytest.raises(SettingError, match="mine remembers clients and needs their numbers, got rows that are not"):
        clients_of(Updates(torch.zeros(2, 1)), "mine")
