"""Pictures of one run or several, drawn from what they recorded."""

from lightning_fl.plot._parts import BYZANTINE, HONEST, save
from lightning_fl.plot.clients import client_weights, label_distributions, partition
from lightning_fl.plot.compare import accuracies, drops, recalls, shares, success_rates
from lightning_fl.plot.grouped import MOST_AXES, MOST_LINES, grouped, grouped_curves
from lightning_fl.plot.run import confusion, kappas, recall_curves, recall_drops, trust_weights
from lightning_fl.plot.sweep_runs import sweep
from lightning_fl.plot.table import Compared, against_paper, by_name, over_parameter
from lightning_fl.plot.tournament import outcomes, worst_over_skew

__all__ = [
    "BYZANTINE",
    "HONEST",
    "MOST_AXES",
    "MOST_LINES",
    "Compared",
    "accuracies",
    "against_paper",
    "by_name",
    "client_weights",
    "confusion",
    "drops",
    "grouped",
    "grouped_curves",
    "kappas",
    "label_distributions",
    "outcomes",
    "over_parameter",
    "partition",
    "recall_curves",
    "recall_drops",
    "recalls",
    "save",
    "shares",
    "success_rates",
    "sweep",
    "trust_weights",
    "worst_over_skew",
]
