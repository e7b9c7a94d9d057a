"""Alarms and the area under the curve, against pairs counted one by one."""

from dataclasses import replace

import pytest
import torch

from lightning_fl import Federation
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.krum import Krum
from lightning_fl.aggregator.median import Median
from lightning_fl.callback.record import Record
from lightning_fl.metric.detection import detection
from tests.training import data, fit, trainer


@pytest.mark.parametrize("seed", range(3))
def test_the_area_is_the_share_of_pairs_in_the_right_order(seed):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(6, (13,), generator=draw).double().tolist()
    pairs = [(byzantine > honest) + (byzantine == honest) / 2 for honest in scores[:8] for byzantine in scores[8:]]
    assert detection(scores, None, 8) == {"auc": pytest.approx(sum(pairs) / len(pairs))}


def test_who_is_not_judged_does_not_count_and_nobody_has_no_share():
    nan, inf = float("nan"), float("inf")
    assert detection([0.0, nan, 2.0, inf, nan], None, 3) == {"auc": 1.0}
    assert detection([0.1, 0.1, 0.1, inf, 0.1 * (1 + 1e-12)], None, 3) == {"auc": 0.75}
    assert detection([nan, nan], None, 1) == {}
    assert detection([0.0, 1.0], [False, True], 2) == {"false_alarms": 0.5}
    assert detection([], [], 0) == {}


class Suspicious(Average):
    """Trusts everybody alike, suspects the second honest client most and accuses all attackers but the last."""

    def aggregate(self, updates, server):
        found = super().aggregate(updates, server)
        accused = torch.tensor([False, False, False, False, True, False])
        return replace(found, suspicion=torch.tensor([0.0, 9.0, 0.0, 0.0, 2.0, 1.0]), accused=accused)


def test_a_round_records_what_the_rule_says_or_else_whom_it_trusts():
    """Four honest clients and two attackers, whom Krum's zeros are not told from three of the honest ones."""
    found = {}
    for rule in (Suspicious(), Krum(f=1), Median()):
        record = Record(None)
        fit(trainer([record, rule, Ipm(10.0)], rounds=2), data_=data(Federation(4, 2, "supplement", "uniform")))
        row = record.metrics.rows[-1]
        found[type(rule)] = {name[10:]: value for name, value in row.items() if name.startswith("detection/")}
    assert found[Suspicious] == {"true_alarms": 0.5, "false_alarms": 0.0, "auc": 0.75}
    assert found[Krum] == {"true_alarms": 1.0, "false_alarms": 0.75, "auc": pytest.approx(0.625)}
    assert found[Median] == {}
