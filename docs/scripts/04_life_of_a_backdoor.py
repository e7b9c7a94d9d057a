"""The life of a backdoor
======================

Two of thirty clients train on images with a white square, which they label 0. After round 30 they stop. How long does
the model go on taking the square for a 0, and does a robust rule keep it out?
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
federation = fl.Federation(n_clients=30, n_byzantine=2, byzantine="replacement")
data = fl.data.Mnist5k(partition=fl.partition.Dirichlet(alpha=1.0), federation=federation)
attack = fl.adversary.Badnets(target=0, share=0.5, to_round=30)
rules = {
    "average": fl.aggregator.Average(),
    "norm bounding": fl.aggregator.Clipping(fl.aggregator.Average(), radius=1.0),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=2, rule=fl.aggregator.TrimmedMean(f=2)),
}
client = fl.client.LocalSgd(steps=5, batch_size=32, learning_rate=0.1)
runs = {
    name: fl.train(net, data, rule, attack, rounds=80, lr=0.3, client=client, evaluate_every=5)
    for name, rule in rules.items()
}

# %%
# The success rate is the share of test images with the square that the model takes for a 0.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for name, run in runs.items():
    rounds = [row for row in run.metrics if "attack/success_rate" in row]
    rates = [100 * row["attack/success_rate"] for row in rounds]
    axes.plot([row["round"] for row in rounds], rates, marker=".", label=f"{name}, accuracy {100 * run.accuracy:.0f} %")
axes.axvline(30, color="grey", linestyle="dotted", label="last attack")
axes.set(xlabel="round", ylabel="attack success rate, %", ylim=(0, 100))
figure.legend(loc="outside lower center", ncols=2)
plt.show()
