from ._parts import BYZANTINE, HONEST, LEGIBLE, Pictures, named, publish, save
from .clients import client_weights, label_distributions, partition
from .compare import accuracies, drops, recalls, shares, success_rates
from .groups import MOST_LINES, grouped, grouped_curves
from .run import confusion, detections, kappas, recall_curves, recall_drops, trust_weights
from .sweep_runs import sweep
from .table import Compared, against_paper, by_name, over_parameter
from .tournament import outcomes, over_told, worst_over_skew
from .worst import worst

__all__ = [
    "BYZANTINE",
    "HONEST",
    "LEGIBLE",
    "MOST_LINES",
    "Compared",
    "Pictures",
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
    "named",
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
