"""Your own rule
=============

A rule that weighs clients is one method. This one averages the updates that are nearest to the coordinate-wise median,
and it runs, is saved and is recorded like any other. On the command line it takes one file of settings more:
:doc:`/use/own`.
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl
from lightning_fl.ranges import NonNegativeInt


class NearMedian(fl.Weighting):
    """Average the n - f updates nearest to the coordinate-wise median."""

    least = "2f + 1"  # updates that a round must bring

    def __init__(self, f: NonNegativeInt):
        self.f = f

    def weights(self, updates, server):
        """Weigh the rows of one round."""
        distances = (updates.rows - updates.rows.median(dim=0).values).norm(dim=1)
        near = distances.nan_to_num(float("inf")).argsort()[: updates.n - self.f]
        return distances.new_zeros(updates.n).index_fill(0, near, 1 / len(near))


# %%
# It can be called on plain tensors, as every rule can, and trained with.

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
data = fl.data.Mnist5k(partition=fl.partition.Dirichlet(alpha=0.5), federation=fl.Federation(30, 6))
attacks = {
    "no attack": None,
    "IPM": fl.adversary.Ipm(),
    "LIE": fl.adversary.Lie(),
    "asks the rule": fl.adversary.OptIpm(),
}
rules = {"near the median": NearMedian(f=6), "median": fl.aggregator.Median(), "RFA": fl.aggregator.Rfa()}

# %%
# One bar per rule and attack.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (name, rule) in enumerate(rules.items()):
    runs = [fl.train(net, data, rule, attack, rounds=40, lr=0.3, evaluate_every=40) for attack in attacks.values()]
    heights = [100 * (run.accuracy or 0.1) for run in runs]
    axes.bar([j + 0.27 * (i - 1) for j in range(len(attacks))], heights, width=0.25, label=name)
axes.set_xticks(range(len(attacks)), list(attacks))
axes.set(ylabel="test accuracy, %", ylim=(0, 100))
axes.legend(loc="lower left")
plt.show()
