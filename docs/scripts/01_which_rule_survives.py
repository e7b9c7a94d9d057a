"""Which rule survives
===================

Thirty clients hold two digits each, and six others send -10 times the honest mean. Plain averaging breaks at once; so
do, under this skew, two rules that were made for clients who are alike.
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
data = fl.data.Mnist5k(partition=fl.partition.Pathological(), federation=fl.Federation(n_clients=30, n_byzantine=6))
rules = {
    "average": fl.aggregator.Average(),
    "median": fl.aggregator.Median(),
    "Krum": fl.aggregator.Krum(f=6),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=6, rule=fl.aggregator.TrimmedMean(f=6)),
    "normalising": fl.aggregator.Normalized(),
}
runs = {name: fl.train(net, data, rule, fl.adversary.Ipm(), rounds=60, lr=0.3) for name, rule in rules.items()}

# %%
# A run's ``metrics`` has a record per round, with the accuracy where it was evaluated.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, run in runs.items():
    rounds = [row for row in run.metrics if "accuracy" in row]
    axes.plot([row["round"] for row in rounds], [100 * row["accuracy"] for row in rounds], marker=".", label=name)
axes.set(xlabel="round", ylabel="test accuracy, %", ylim=(0, 100))
figure.legend(loc="outside right upper")
plt.show()
