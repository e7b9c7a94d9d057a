"""A run's numbers in words."""

from collections.abc import Iterable
from typing import Any

from lightning_fl.run.saved import trust_shares
from lightning_fl.text import many


def facts(summary: dict[str, Any]) -> dict[str, str]:
    """Put the numbers of a summary into words, by their names, but for the recall of each class.

    What was not measured is left out.  A diverged run has no result but the accuracy that was measured last.
    """
    last, shares, costs = summary["last_evaluation"], trust_shares(summary), summary["communication"].values()
    seconds = "" if summary["seconds"] is None else f", {summary['seconds']:.1f} s"
    found = {"status": f"{summary['status']} after {many(summary['rounds'], 'round')}{seconds}"}
    when = "" if last["round"] is None else f" (round {last['round']})"
    if summary["accuracy"] is not None:
        found["accuracy"] = f"{summary['accuracy']:.2%}{when}"
        if summary["validation_accuracy"] is not None:
            found["on validation samples"] = f"{summary['validation_accuracy']:.2%}"
        if spread := summary["client_accuracy"]:
            told = ", ".join(f"{name} {value:.2%}" for name, value in spread.items())
            found["of honest clients"] = told.replace("tenth", "10 % quantile")
        drop = summary["mrd"]
        found["max-recall-drop"] = "n/a: no reference run" if drop is None else f"{drop:.2%}"
        found |= attack_texts(summary)
    elif last["accuracy"] is not None:
        found["accuracy"] = f"none; {last['accuracy']:.1%} when last measured{when}"
    if shares:
        byzantine = "" if summary["mean_weight"]["byzantine"] is None else f", {shares[1]:.2%} Byzantine"
        found["weight given"] = f"{shares[0]:.2%} honest{byzantine} (mean over rounds)"
    elif summary["rounds"]:
        found["weight given"] = f"none: {unweighted_text(summary)}"
    found |= {"detection": _detection(summary["detection"]), "robustness": _kappa(summary["robustness"])}
    if proven := summary["privacy"]:
        uploads = f"{many(int(proven['uploads']), 'upload')} of a client at most"
        found["privacy"] = f"epsilon {proven['epsilon']:.3g} at delta {proven['delta']:g}, {uploads}"
    if None not in costs:
        found["communication"] = "{:,} floats up, {:,} down, {:,} sample gradients".format(*costs)
    return {name: text for name, text in found.items() if text}


def least_recall(recall: Iterable[float | None] | None) -> float | None:
    """Give the recall of the least recognised class; classes without samples do not count.

    >>> least_recall([0.9, None, 0.2]), least_recall(None)
    (0.2, None)
    """
    return min((share for share in recall or () if share is not None), default=None)


def attack_texts(evaluation: dict[str, Any]) -> dict[str, str]:
    """Describe what an attack measured of its own success: shares, or a number of rounds.

    >>> attack_texts({"attack": {"success_rate": 0.5, "lifespan": 3}})
    {'attack success rate': '50.00%', 'attack lifespan': '3 rounds'}
    """
    found = (evaluation.get("attack") or {}).items()
    return {
        f"attack {name.replace('_', ' ')}": many(value, "round") if isinstance(value, int) else f"{value:.2%}"
        for name, value in found
    }


def unweighted_text(summary: dict[str, Any]) -> str:
    """Say why no client has a weight in a summary without any."""
    computed = summary["communication"].get("sample_gradients") != 0  # or nobody was drawn
    return "not a weighting" if computed else "no round was computed"


def _detection(detection: dict[str, float | None]) -> str:
    """Describe how well a rule tells who lies, mean over rounds; empty where nobody lies or it says nothing."""
    if (area := detection["auc"]) is None:
        return ""
    shares = [(detection["true_alarms"], "Byzantine"), (detection["false_alarms"], "honest")]
    accused = [f"{share:.1%} of {who} clients" for share, who in shares if share is not None]
    return f"area under the curve {area:.3f}" + (f"; accused {', '.join(accused)}" if accused else "")


def _kappa(robustness: dict[str, Any]) -> str:
    """Describe kappa over rounds beside theory's bound; empty if none was measured."""
    mean, most, infinite, bound = (robustness[name] for name in ("mean", "max", "infinite_rounds", "bound"))
    parts = [] if mean is None else [f"{mean:.3g} (mean over rounds)", f"{most:.3g} at most"]
    parts += [f"infinite in {many(infinite, 'round')}"] if infinite else []
    proven = "no bound" if bound is None else f"bound {bound:.3g}"
    return f"kappa {', '.join(parts)}; {proven}" if parts else ""
