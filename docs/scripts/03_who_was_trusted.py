"""Who was trusted
===============

A rule that weighs clients says each round whom it trusted. After three rounds BOBA tells six attackers from thirty
honest clients, although the honest ones hold two digits each and differ a lot.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
data = fl.data.Mnist5k(
    partition=fl.partition.Pathological(), federation=fl.Federation(n_clients=30, n_byzantine=6), server_samples=20
)
run = fl.train(net, data, fl.aggregator.Boba(f=6), fl.adversary.Ipm(), rounds=40, lr=0.3)

# %%
# ``run.weights`` has one record per round and a column per client: here the attackers' are the last six.

weights = np.array([[row[str(client)] for client in range(36)] for row in run.weights])
figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
image = axes.imshow(weights.T, aspect="auto", cmap="viridis", vmin=0)
axes.axhline(29.5, color="white")
axes.set(xlabel="round", ylabel="client; below the line: attackers")
figure.colorbar(image, label="weight in the server's step")
plt.show()
