"""
A sweep of BOBA's settings
==========================

BOBA is told that f clients may lie, drops who lies outside the honest simplex by more than a tolerance ``p_min``, and
finds that simplex with K samples of each class at the server. Each is changed by itself here; six of 36 clients lie.
The least recognised class tells how much of it BOBA can do without.
"""

from functools import cache, partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)


@cache
def least_recall(p_min, f, k):
    """Rounds, and the recall of the least recognised class after each."""
    data = fl.data.Mnist5k(federation=fl.Federation(n_clients=30, n_byzantine=6), server_samples=k)
    rule = fl.aggregator.Boba(f=f, p_min=p_min)
    run = fl.train(net, data, rule, fl.adversary.Ipm(), rounds=40, lr=0.3, evaluate_every=5)
    rows = [row for row in run.metrics if "recall/0" in row]
    return [row["round"] for row in rows], [100 * min(row[f"recall/{z}"] for z in range(10)) for row in rows]


usual = {"p_min": -0.5, "f": 6, "k": 20}
swept = {"p_min": [0.0, -0.25, -0.5], "f": [3, 6, 12], "k": [2, 5, 20]}
figure, panels = plt.subplots(3, figsize=(6, 10), sharex=True, sharey=True, layout="constrained")
for axes, (name, values) in zip(panels, swept.items(), strict=True):
    for value in values:
        axes.plot(*least_recall(**usual | {name: value}), label=f"{name.upper() if name == 'k' else name} = {value:g}")
    axes.set(ylabel="least recall, %", ylim=(0, 100))
    axes.legend(loc="lower right")
panels[-1].set(xlabel="round")
plt.show()
