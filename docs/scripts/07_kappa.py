"""kappa, measured and proven
==========================

How far is a rule's answer from the honest mean? kappa is that squared distance over the honest variance. For some rules
a bound is proven, which no attack can exceed; attacks that search come how near?
"""

import matplotlib.pyplot as plt
import torch

import lightning_fl as fl
from lightning_fl.metric.robustness import measured_kappa

n, b, d = 30, 4, 200
honest = torch.randn(n - b, d, generator=torch.Generator().manual_seed(0)) + 1.0
rules = {
    "median": fl.aggregator.Median(),
    "trimmed mean": fl.aggregator.TrimmedMean(f=b),
    "geometric median": fl.aggregator.GeometricMedian(),
    "Krum": fl.aggregator.Krum(f=b, neighbours="n-f-1"),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=b, rule=fl.aggregator.TrimmedMean(f=b)),
}
attacks = {
    "LIE": fl.adversary.Lie(),
    "Min-Max": fl.adversary.MinMax(),
    "asks the rule": fl.adversary.Adaptive(),
}

# %%
# Attacks and rules are called on plain tensors; a run records kappa each round (``robustness/kappa``).

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for i, (name, attack) in enumerate(attacks.items()):
    found = []
    for rule in rules.values():
        asked = {"rule": rule} if attack.knows == "rule" else {}
        sent = torch.cat([honest, attack(honest, b, **asked)])
        found.append(measured_kappa(fl.Updates(sent), rule(sent), h=n - b))
    axes.scatter(found, range(len(rules)), marker="o<s"[i], label=name)
for row, rule in enumerate(rules.values()):
    bound = rule.kappa(n, b, equal=True)
    if bound is not None:
        axes.plot([bound, bound], [row - 0.3, row + 0.3], color="black", label="proven bound" if row == 0 else None)
axes.set_yticks(range(len(rules)), list(rules))
axes.set(xscale="log", xlabel="kappa: squared distance from the honest mean over the honest variance")
axes.legend()
plt.show()
