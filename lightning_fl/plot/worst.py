"""A picture of how far a rule can be moved."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from lightning_fl.plot._parts import BYZANTINE, DPI, HONEST, name_rows, wrapped


def worst(kappas: Mapping[str, float], lines: Mapping[str, float], found: Any, title: str) -> Figure:
    """Draw what was found on each family of honest rows, and the worst rows of all in the plane that shows most.

    The plane goes through the honest mean: along the way of the rule's answer, and along what differs most between
    honest rows across it.

    Args:
        kappas: The largest kappa found, by family.
        lines: Bounds on it, by what they are.
        found: The `lightning_fl.yardstick.worst.Worst` of the worst family.
        title: Which rule was asked.
    """
    figure = Figure(figsize=(11.0, 4.5), dpi=DPI, layout="constrained")
    figure.suptitle(wrapped(title, 110), fontsize=11)
    bars, plane = figure.subplots(1, 2)
    top = 2 * max([1.0, *lines.values()])
    bars.barh(range(len(kappas)), [min(kappa, top) for kappa in kappas.values()], color=BYZANTINE)
    for i, kappa in enumerate(kappas.values()):
        bars.text(min(kappa, top), i, f" {kappa:.3g}" if kappa <= top else " unbounded →", va="center", fontsize=9)
    name_rows(bars, list(kappas))
    for (name, value), style in zip(lines.items(), ("-", "--"), strict=False):
        bars.axvline(value, color="black", linestyle=style, label=f"{name}: {value:.3g}")
    bars.set(xlabel="kappa: squared distance / honest variance")
    bars.margins(x=0.2)
    if lines:
        bars.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False, ncols=2)
    honest, forged, answer = _in_plane(found.honest, found.rows, found.answer)
    reach = 2 * max(np.abs(honest).max(), 1e-12)
    near = np.abs(forged).max(1) <= reach
    plane.scatter(*honest.T, color=HONEST, marker="o", label="honest")
    plane.scatter(*forged[near].T, color=BYZANTINE, marker="x", label=f"forged ({(~near).sum()} beyond the picture)")
    plane.scatter(0, 0, color="black", marker="+", s=120, label="honest mean")
    plane.scatter(*np.clip(answer, -reach, reach).T, color="black", marker="*", s=120, label="the rule's answer")
    plane.set(xlabel="towards the answer", ylabel="across it", xlim=(-reach, reach), ylim=(-reach, reach))
    plane.set_title(wrapped(f"the worst rows, by {found.member}", 40), fontsize=10)
    plane.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    for axes in (bars, plane):
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def _in_plane(honest: Tensor, forged: Tensor, answer: Tensor) -> tuple[Any, Any, Any]:
    """Coordinates along the answer and along the honest rows' main direction across it, about the honest mean."""
    mean = honest.double().mean(0)
    away = (answer.double() - mean).nan_to_num(posinf=0.0, neginf=0.0)
    first = away / away.norm().clamp(min=1e-30)
    about = honest.double() - mean
    across = about - (about @ first)[:, None] * first
    second = torch.linalg.svd(across, full_matrices=False).Vh[0]
    axes = torch.stack([first, second], 1)
    shown = [(rows.double() - mean).nan_to_num(posinf=1e30, neginf=-1e30) @ axes for rows in (honest, forged)]
    return shown[0].cpu().numpy(), shown[1].cpu().numpy(), (away @ axes)[None].cpu().numpy()
