"""Your own data and users
=======================

Any data set of torch, any rows of Hugging Face and any table will do; where samples have a user, each user is a client.
Here 24 people make measurements of a wine, each of the few kinds that they know, and four of them invent theirs.
"""

import matplotlib.pyplot as plt
import numpy as np
from torch import nn

import lightning_fl as fl

draw = np.random.default_rng(0)
kinds = draw.integers(0, 5, 3000)
people = (4 * kinds + draw.integers(0, 8, 3000)) % 24  # whoever knows one kind knows the next one, too
measured = np.eye(5, 12)[kinds] * 3 + draw.normal(size=(3000, 12))
rows = [
    {"measured": x.astype("float32"), "kind": int(y), "person": int(who)}
    for x, y, who in zip(measured, kinds, people, strict=True)
]

data = fl.TensorData.from_dataset(rows, input="measured", target="kind", user="person", n_byzantine=4)

# %%
# A model is any module of torch; ``run.clients`` says who held what.


def net():
    """Make the model."""
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))


run = fl.train(net, data, fl.aggregator.GeometricMedian(), fl.adversary.SignFlip(), rounds=100, lr=0.3)
held = np.array([[row[f"samples/{kind}"] for kind in range(5)] for row in run.clients if not row["byzantine"]])

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
foot = np.zeros(len(held))
for kind in range(5):
    axes.bar(range(len(held)), held[:, kind], bottom=foot, label=f"kind {kind}, recall {100 * run.recall[kind]:.0f} %")
    foot += held[:, kind]
axes.set(xlabel="client: one of the people", ylabel="samples")
axes.legend(ncols=3, loc="lower center")
axes.set_ylim(-0.5 * foot.max(), None)
plt.show()
