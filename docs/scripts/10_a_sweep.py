"""
A sweep of BOBA's settings
==========================

BOBA drops who lies outside the honest simplex by more than a tolerance ``p_min``, and finds that simplex with K samples
of each class at the server. How few are enough? The least recognised class tells.
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for samples, style in [(2, "dotted"), (5, "dashed"), (20, "solid")]:
    data = fl.data.Mnist5k(federation=fl.Federation(n_clients=30, n_byzantine=6), server_samples=samples)
    for p_min, colour in [(0.0, "tab:red"), (-0.5, "tab:blue")]:
        rule = fl.aggregator.Boba(f=6, p_min=p_min)
        run = fl.train(net, data, rule, fl.adversary.Ipm(), rounds=40, lr=0.3, evaluate_every=5)
        rounds = [row for row in run.metrics if "recall/0" in row]
        least = [100 * min(row[f"recall/{z}"] for z in range(10)) for row in rounds]
        label = f"p_min = {p_min:g}, K = {samples}"
        axes.plot([row["round"] for row in rounds], least, color=colour, linestyle=style, label=label)
axes.set(xlabel="round", ylabel="recall of the least recognised class, %", ylim=(0, 100))
figure.legend(loc="outside lower center", ncols=3)
plt.show()
