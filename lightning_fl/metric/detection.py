"""How well a rule tells who lies, against the truth that a simulation knows."""

from collections.abc import Sequence

import numpy as np


def detection(suspicion: Sequence[float], accused: Sequence[bool] | None, h: int) -> dict[str, float]:
    """Compare what a rule thinks of a round's clients with what they are.

    Args:
        suspicion: (n,) how suspicious each is, honest ones first; NaN: not judged.  They are rounded to 1e-5 of the
            largest finite one, since what differs by less may differ by rounding alone.
        accused: (n,) whom the rule takes for a liar.  None: it does not say.
        h: How many are honest.

    Returns:
        "true_alarms" and "false_alarms", the shares of the Byzantine and of the honest clients who are accused, and
        "auc", the probability that a Byzantine client is more suspicious than an honest one, ties counting half: the
        area under the curve of true alarms over false ones.  What there is nobody for is left out.

    One of two liars is accused, and more suspicious than everybody honest; the other one than half of them:

    >>> detection([0.1, 0.4, 0.9, 0.2], [False, False, True, False], h=2)
    {'true_alarms': 0.5, 'false_alarms': 0.0, 'auc': 0.75}
    """
    found = {}
    for name, part in [("true_alarms", slice(h, None)), ("false_alarms", slice(h))]:
        if accused is not None and len(judged := accused[part]):
            found[name] = sum(judged) / len(judged)
    scores = np.asarray(suspicion, dtype=float)
    largest = np.abs(scores[np.isfinite(scores)]).max(initial=0.0)
    if largest > 0:
        scores = np.round(scores / largest, 5)
    honest, byzantine = (np.sort(part[~np.isnan(part)]) for part in (scores[:h], scores[h:]))
    if len(honest) and len(byzantine):
        below = honest.searchsorted(byzantine, "left") + honest.searchsorted(byzantine, "right")
        found["auc"] = float(below.mean() / (2 * len(honest)))
    return found
