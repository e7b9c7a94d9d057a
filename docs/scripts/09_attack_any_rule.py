"""
Attack any rule
===============

An attacker who may ask the rule tries lies of every size and sends the one that carries the answer farthest from the
honest mean. Too small a lie does little, too large a one is thrown out: where the cliff is depends on the rule.
"""

import matplotlib.pyplot as plt
import torch

import lightning_fl as fl
from lightning_fl.metric.robustness import measured_kappa

n, b, d = 30, 6, 200
honest = torch.randn(n - b, d, generator=torch.Generator().manual_seed(0)) + 0.3
rules = {
    "Krum": fl.aggregator.Krum(f=b),
    "multi-Krum": fl.aggregator.MultiKrum(f=b),
    "geometric median": fl.aggregator.GeometricMedian(),
    "normalising": fl.aggregator.Normalized(),
    "mixing, trimmed mean": fl.aggregator.Nnm(f=b, rule=fl.aggregator.TrimmedMean(f=b)),
}
factors = torch.logspace(-1, 2, 40).tolist()


def kappa(rule, forged):
    """How far the rule's answer is from the honest mean."""
    sent = torch.cat([honest, forged])
    return measured_kappa(fl.Updates(sent), rule(sent), h=n - b)


# %%
# A line is what each size of the lie does, dotted what ``OptIpm`` sends, who asks a few times a round only.

figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, rule in rules.items():
    found = kappa(rule, fl.adversary.OptIpm()(honest, b, rule=rule))
    (line,) = axes.loglog(factors, [kappa(rule, fl.adversary.Ipm(gamma)(honest, b)) for gamma in factors], label=name)
    axes.axhline(found, color=line.get_color(), linestyle="dotted")
axes.set(xlabel="size of the lie: -gamma times the honest mean", ylabel="kappa", ylim=(1e-2, 10))
figure.legend(loc="outside lower center", ncols=3, title="dotted: what the search finds")
plt.show()
