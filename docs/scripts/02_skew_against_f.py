"""Skew against attackers
======================

How many attackers a rule stands depends on how skewed the clients' classes are. Here the trimmed mean meets an attacker
who asks it: where classes are equally spread it stands eight of thirty-two, and under skew it does not.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
alphas, attackers, n_clients = [0.1, 0.5, 100.0], [1, 4, 8], 24
accuracy = np.zeros((len(alphas), len(attackers)))
for i, alpha in enumerate(alphas):
    for j, b in enumerate(attackers):
        data = fl.data.Mnist5k(partition=fl.partition.Dirichlet(alpha=alpha), federation=fl.Federation(n_clients, b))
        rule, attack = fl.aggregator.TrimmedMean(f=b), fl.adversary.OptAlie()
        run = fl.train(net, data, rule, attack, rounds=40, lr=0.3, evaluate_every=40)
        accuracy[i, j] = 0.1 if run.accuracy is None else run.accuracy

# %%
# Each cell is one run; :doc:`/concepts/errors` says what one seed is worth.

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
image = axes.imshow(100 * accuracy, vmin=0, vmax=100, cmap="viridis")
for (i, j), value in np.ndenumerate(100 * accuracy):
    axes.text(j, i, f"{value:.0f}", ha="center", va="center", color="black" if value > 60 else "white")
axes.set_xticks(range(len(attackers)), [f"{b} of {n_clients + b}" for b in attackers])
axes.set_yticks(range(len(alphas)), [f"alpha = {alpha:g}" for alpha in alphas])
axes.set(xlabel="attackers", ylabel="from skewed to equally spread")
figure.colorbar(image, label="test accuracy, %")
plt.show()
