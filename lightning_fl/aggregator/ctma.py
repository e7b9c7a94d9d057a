"""CTMA, centred trimmed meta-aggregation: the mean of the n - f updates nearest to another rule's answer.

Tehila Dahan, Kfir Y. Levy. Fault Tolerant ML: Efficient Meta-Aggregation and Synchronous Training. ICML 2024.
arXiv:2405.14759.
"""

from lightning_fl.aggregator.base import Aggregation, Aggregator, aggregated
from lightning_fl.aggregator.guarantee import told_fewer
from lightning_fl.aggregator.nearest import nearest_weights
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.deviation import squares_about
from lightning_fl.updates.updates import Updates


class Ctma(Wrapper):
    """Average the n - f updates nearest to the answer of a rule, in Euclidean distance (Algorithm 1).

    Where nearest-neighbour mixing takes O(n^2 d), the distances to one point take O(n d).  After a coordinate rule,
    too, the result is a combination of the updates with weights 1/(n - f).

    Args:
        rule: The rule, about all updates; told the same f if it has one.
        f: Byzantine clients tolerated, 0 <= 2f < n.

    Note:
        Of equally near updates the first count; the authors' code keeps all of them and divides by n - f.  An update
        with NaN or inf is left out and counts among the f.  Data weights play no part here, as in the paper.

    The median is 3, and the squared distances to it are 9, 1, 0, 1 and 9:

    >>> import torch
    >>> from lightning_fl.aggregator.median import Median
    >>> Ctma(Median(), f=2)(torch.tensor([[0.0], [2.0], [3.0], [4.0], [6.0]]))
    tensor([3.])
    """

    least = "2f + 1"

    def __init__(self, rule: Aggregator, f: NonNegativeInt):
        super().__init__(rule)
        self.f = f

    @property
    def exact(self) -> bool:
        """Whether the rule is: then the n - f equal rows are nearest; see the base class."""
        return self.rule.exact

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare f with the rule's, and pass on what the rule says; see the base class."""
        return told_fewer(self.rule, self.f) or super().guarantee(n, n_classes)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        anchor = aggregated(self.rule, updates, server).answer
        weights = nearest_weights(squares_about(updates, anchor), self.f, "ctma")
        return Aggregation(updates.combination(weights), weights)
