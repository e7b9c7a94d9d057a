"""
The worst of anybody's rule
===========================

``fl.worst`` takes any function from the rows of a round to one vector, of any library, and looks for the lies that
carry it farthest from the honest mean. Here five rules, one of them a line of torch, meet three liars among fifteen.
"""

import matplotlib.pyplot as plt
import torch

import lightning_fl as fl

honest = torch.randn(12, 50, generator=torch.Generator().manual_seed(0))
rules = {
    "Krum": fl.aggregator.Krum(f=3),
    "torch's median": lambda rows: rows.median(0).values,
    "trimmed mean": fl.aggregator.TrimmedMean(f=3),
    "geometric median": fl.aggregator.GeometricMedian(),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=3, rule=fl.aggregator.TrimmedMean(f=3)),
}
found = {name: fl.worst(rule, honest, f=3, budget=500) for name, rule in rules.items()}
print(found["trimmed mean"])

# %%
# kappa is the squared distance from the honest mean over the honest variance: below 1, the answer is nearer to that
# mean than honest clients are on average.

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.barh(list(found), [one.kappa for one in found.values()])
axes.set(xlabel="kappa of the worst rows that were found")
plt.show()
