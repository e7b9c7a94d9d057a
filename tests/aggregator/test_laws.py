"""The contract's laws where conf has a rule with other settings, and that they find out who breaks them."""

import pytest
import torch

from lightning_fl import Federation, SettingError, Updates
from lightning_fl.adversary.adaptive import Adaptive
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bucketing import Bucketing
from lightning_fl.aggregator.bygars import Bygars
from lightning_fl.aggregator.centred_clipping import CentredClipping, SequentialCentredClipping
from lightning_fl.aggregator.fedseca import Fedseca
from lightning_fl.aggregator.foolsgold import Foolsgold
from lightning_fl.aggregator.gas import Gas
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.layerwise import Layerwise
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.rage import Rage
from lightning_fl.aggregator.rosdhb import Rosdhb
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract import test_aggregator as laws
from lightning_fl.server_oracle import GivenServer
from tests import training


@pytest.fixture
def hold(monkeypatch):
    """Hold a rule to a law."""

    def hold(make, law, *args):
        monkeypatch.setattr(laws, "make", lambda name, f=laws.F: make(f))
        law("mine", *args)

    return hold


@pytest.mark.parametrize(
    "make",
    [
        lambda f: Bygars(carry_over=True),
        lambda f: CentredClipping(0.3, 4),
        lambda f: SequentialCentredClipping(0.3),
        lambda f: Bucketing(Bygars()),
        lambda f: Foolsgold(normalize=True),
        lambda f: Layerwise(CentredClipping(0.5)),
        lambda f: ServerMixture(Bygars(carry_over=True)),
    ],
)
def test_what_it_remembers_is_saved_and_no_trial_counts(make, hold):
    rule = make(laws.F)
    laws.rounds(rule, [0])
    assert rule.state_dict()
    hold(make, laws.test_its_memory_goes_on_from_a_checkpoint)
    hold(make, laws.test_a_trial_leaves_no_trace)


@pytest.mark.parametrize("rule", [Foolsgold(), Rosdhb(Average()), Bygars(carry_over=True)])
def test_who_remembers_clients_needs_their_numbers(rule):
    with pytest.raises(SettingError, match=f"{rule.spelled()} .*(needs their numbers|by client)"):
        rule.aggregate(Updates(torch.eye(3)), GivenServer(None))


@pytest.mark.parametrize("rule", [CentredClipping(), Fedseca()])
def test_what_is_remembered_has_the_updates_length(rule):
    laws.rounds(rule, [0])
    with pytest.raises(SettingError, match=f"{rule.spelled()} remembers an update of length 9, got .* of length 2"):
        rule.aggregate(Updates(torch.eye(2)), GivenServer(None))


@pytest.mark.parametrize(
    "make",
    [
        lambda f: Gas(Median(), f, 3),
        lambda f: Gas(TrimmedMean(f), f, 3),
        lambda f: Krum(f, "n-f-1"),
        lambda f: MultiKrum(f, None, "n-f-1"),
    ],
)
def test_equal_rows_win(make, hold):
    hold(make, laws.test_equal_rows_win)


def test_centred_scores_move_with_a_shift(hold):
    hold(lambda f: Rage(f, centred=True), laws.test_moves_with_the_rows, "shift")


class Momentum(Average):
    """Averaging with momentum, which it remembers from round to round, and saves or not; maybe trials, or no copy."""

    def __init__(self, saves=True, tries=False, copies=True):
        self.saves, self.tries, self.copies, self.m, self.last = saves, tries, copies, 0, 0

    def aggregate(self, updates, server):
        result = super().aggregate(updates, server)
        self.last = 0.5 * self.m + result.update
        if self.tries:
            self.m = self.last
        return type(result)(self.last.clone() if self.copies else self.last)

    def on_train_batch_end(self, *args):
        self.m = self.last

    def state_dict(self):
        return {"m": self.m} if self.saves else {}

    def load_state_dict(self, state):
        self.m = state.get("m", 0)


def test_a_rule_that_remembers_without_saving_it_is_found_out(hold):
    hold(lambda f: Momentum(), laws.test_its_memory_goes_on_from_a_checkpoint)
    with pytest.raises(AssertionError):
        hold(lambda f: Momentum(saves=False), laws.test_its_memory_goes_on_from_a_checkpoint)


@pytest.mark.parametrize("wrong", [{"tries": True}, {"copies": False}])
def test_a_rule_that_remembers_a_trial_or_its_own_update_is_found_out(hold, wrong):
    hold(lambda f: Momentum(), laws.test_a_trial_leaves_no_trace)
    with pytest.raises(AssertionError):
        hold(lambda f: Momentum(**wrong), laws.test_a_trial_leaves_no_trace)


@pytest.mark.parametrize(
    ("rule", "remembered", "others"),
    [(Foolsgold(normalize=True), "history", []), (Bygars(carry_over=True), "trust", [Adaptive(90, 2.0, "distance")])],
)
def test_clients_come_and_go(rule, remembered, others):
    federation = Federation(8, 2 * len(others), "replacement", "uniform", participation=0.5)
    module = training.fit(training.trainer([rule, *others], rounds=4), data_=training.data(federation))
    assert module.diverged is None
    present = {i for round_ in range(4) for group in federation.participants(round_) for i in group}
    assert set(rule.state_dict()[remembered]) == present


class Knowing(Average):
    """Averages those whom it takes for honest by what it should not go by."""

    order_matters = True

    def __init__(self, f, by):
        self.f, self.by, self.liars = f, by, []

    def check_clients(self, federation):
        self.liars = list(federation.byzantine_ids)

    def aggregate(self, updates, server):
        kept = {
            "place": range(updates.n - self.f),
            "number": sorted(range(updates.n), key=updates.ids.__getitem__)[: updates.n - self.f],
            "word": [i for i in range(updates.n) if updates.ids[i] not in self.liars],
        }[self.by]
        return super().aggregate(Updates(updates.rows[list(kept)]), server)


class Hooked(Average):
    """Averages, and reads what it should not."""

    def on_train_batch_start(self, trainer, *args):
        self.seen = trainer.datamodule.test


@pytest.mark.parametrize("by", ["place", "number"])
def test_who_goes_by_place_or_number_is_found_out(by, hold):
    law = laws.test_hostile_rows_leave_it_finite_and_near.hypothesis.inner_test
    with pytest.raises(AssertionError):
        hold(lambda f: Knowing(f, by), law, 12, [1e30, 1e30, 1e30], None, 0, 0)


@pytest.mark.parametrize(
    ("make", "why"), [(lambda f: Knowing(f, "word"), "not equal"), (lambda f: Hooked(), "trainer")]
)
def test_who_asks_for_the_attackers_is_found_out(make, why, hold):
    with pytest.raises(AssertionError, match=why):
        hold(make, laws.test_who_attacks_changes_nothing)
