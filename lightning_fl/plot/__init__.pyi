from ._parts import BYZANTINE, HONEST, LEGIBLE, publish, save
from .clients import client_weights, label_distributions, partition
from .compare import accuracies, drops, recalls, shares, success_rates
from .groups import MOST_AXES, MOST_LINES, grouped, grouped_curves
from .run import confusion, detections, kappas, recall_curves, recall_drops, trust_weights
from .sweep_runs import sweep
from .table import Compared, against_paper, by_name, over_parameter
from .tournament import outcomes, over_told, worst_over_skew
from .worst import worst

__all__ = [
    "BYZANTINE",
    "HONEST",
    "LEGIBLE",
    "MOST_AXES",
    "MOST_LINES",
    "Compared",
    "accuracies",
    "against_paper",
    "by_name",
    "client_weights",
    "confusion",
    "detections",
    "drops",
    "grouped",
    "grouped_curves",
    "kappas",
    "label_distributions",
    "outcomes",
    "over_parameter",
    "over_told",
    "partition",
    "publish",
    "recall_curves",
    "recall_drops",
    "recalls",
    "save",
    "shares",
    "success_rates",
    "sweep",
    "trust_weights",
    "worst",
    "worst_over_skew",
]
