"""
Advice for your own sites
=========================

Hospitals know how many images of each class each of them holds, and that one of them may be hacked. ``lightning-fl
advise sites.csv`` plays a league on synthetic samples that are held just so; here is the same in Python.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import lightning_fl as fl
from lightning_fl.study.advise import Sites, advise

held = {
    "Aachen": [12120, 5310, 3104],
    "Basel": [4020, 2200, 1110],
    "Cork": [2410, 610, 333],
    "Delft": [1890, 1204, 80],
    "Evora": [60, 55, 410],
    "Faro": [700, 20, 15],
    "Graz": [510, 480, 490],
}
sites = Sites(list(held), ["normal", "benign", "malignant"], torch.tensor(list(held.values())))
rules = {
    "average": lambda f: fl.aggregator.Average(),
    "median": lambda f: fl.aggregator.Median(),
    "trimmed_mean": lambda f: fl.aggregator.TrimmedMean(f),
    "nnm_trimmed_mean": lambda f: fl.aggregator.Nnm(f=f, rule=fl.aggregator.TrimmedMean(f)),
}
found = advise(sites, 1, list(rules), lambda name, f: rules[name](f))
print(found)

# %%
# One liar carries the average away, however few samples it holds. The insurance against it costs less than a point
# while nobody lies.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
names = [f"{rule}, {'by samples' if weights == 'samples' else 'equal'}" for rule, weights in found.accuracy]
for i, when in enumerate(["nobody lies", *found.liars]):
    values = [accuracy[when] for accuracy in found.accuracy.values()]
    axes.barh(np.arange(len(names)) + 0.27 * (i - 1), values, height=0.25, label=when)
axes.set_yticks(range(len(names)), names)
axes.set(xlabel="accuracy (%)", xlim=(0, 100))
axes.invert_yaxis()
figure.legend(loc="outside lower center", ncols=3)
plt.show()
