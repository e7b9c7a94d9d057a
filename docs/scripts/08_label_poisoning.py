"""Label poisoning
===============

The weakest attackers cannot compute a lie: they have samples with false labels, and do all else as they should. Here
twelve of thirty call a 2 a 7. Accuracy does not show it, recall of the 2 does, and rules that go by the majority do not
help where a false label is common.
"""

from functools import partial

import matplotlib.pyplot as plt

import lightning_fl as fl

net = partial(fl.model.Mlp, in_features=784, hidden=[32], n_classes=10)
federation = fl.Federation(n_clients=30, n_byzantine=12, byzantine="replacement")
data = fl.data.Mnist5k(partition=fl.partition.Dirichlet(alpha=1.0), federation=federation)
attack = fl.adversary.LabelFlipPair(source=2, target=7)
rules = {
    "average": fl.aggregator.Average(),
    "geometric median": fl.aggregator.GeometricMedian(),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=12, rule=fl.aggregator.TrimmedMean(f=12)),
}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (name, rule) in enumerate(rules.items()):
    run = fl.train(net, data, rule, attack, rounds=60, lr=0.3, evaluate_every=60)
    recall = [100 * share for share in run.recall]
    label = f"{name}, accuracy {100 * run.accuracy:.0f} %"
    axes.bar([z + 0.27 * (i - 1) for z in range(10)], recall, width=0.25, label=label)
axes.set_xticks(range(10), [f"{z}" for z in range(10)])
axes.set(xlabel="digit", ylabel="recall, %", ylim=(0, 100))
figure.legend(loc="outside lower center", ncols=2)
plt.show()
