"""
One table over seeds
====================

One seed is one draw. ``fl.train`` takes several, and ``fl.compare`` makes a table of any runs, with the 95 % interval
of the mean.
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
data = fl.data.Mnist5k(partition=fl.partition.Dirichlet(alpha=0.3), federation=fl.Federation(24, 5))
rules = [fl.aggregator.Median(), fl.aggregator.GeometricMedian(), fl.aggregator.Normalized()]
attacks = [fl.adversary.Ipm(), fl.adversary.MinMax()]
runs = [
    fl.train(net, data, rule, attack, rounds=25, lr=0.3, evaluate_every=25, seed=[0, 1, 2])
    for rule in rules
    for attack in attacks
]

figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for place, seeds in enumerate(runs):
    axes.plot([place] * 3, [100 * run.accuracy for run in seeds], "o", color=f"C{place // 2}")
axes.set_xticks(range(len(runs)), [seeds[0].title.replace(", ", "\n") for seeds in runs], fontsize="small")
axes.set(ylabel="test accuracy of each seed, %")
plt.show()

# %%
# ``table.latex()`` and ``table.markdown()`` write it for a paper, ``table.frame`` is a data frame.

table = fl.compare(runs, rows="aggregator", columns="adversary")
table
