"""What the ledger calls agreement, a reading, a fault."""

import ledger
import numpy as np
import pytest

X = np.random.default_rng(0).standard_normal((11, 4))
SPOILT = np.vstack([X[:9], np.full((2, 4), np.nan)])


def test_two_hundred_inputs():
    kinds = [kind for kind, _, _ in ledger.inputs(ledger.RULES["Krum"].least)]
    assert len(kinds) == 200
    assert set(kinds) == set(ledger.KINDS)


@pytest.mark.parametrize(
    ("rule", "kind", "x", "answer", "verdict"),
    [
        ("median", "ordinary", X[:10], lambda x: np.median(x, axis=0), "agrees"),
        ("median", "ordinary", X[:10], lambda x: np.sort(x, axis=0)[4], "the lower of two middle values"),
        ("median", "ordinary", 1e4 + X, lambda x: np.median(np.float32(x), axis=0), "float64 computed in float32"),
        ("median", "ordinary", X, lambda x: x.mean(0), "fault"),
        ("median", "NaN", SPOILT, lambda x: np.nanmedian(x, axis=0), "agrees"),
        ("median", "NaN", SPOILT, lambda x: x.mean(0), "NaN"),
        ("median", "NaN", SPOILT, lambda x: x[0] + 1e3, "fault"),
        ("Krum", "ordinary", X, lambda x: 1 / 0, "raises"),
        ("Krum", "n <= 2f", X[:4], lambda x: 1 / 0, "agrees"),
        ("Krum", "n <= 2f", X[:4], lambda x: x[0], "answers below its bound"),
        ("geometric median", "n <= 2f", X[:2], lambda x: 0.3 * x[0] + 0.7 * x[1], "agrees"),
    ],
)
def test_judges(rule, kind, x, answer, verdict):
    assert ledger.judged(ledger.RULES[rule], kind, x, 2, lambda: answer(x)) == verdict


@pytest.mark.parametrize("name", ledger.RULES)
def test_ours_agree_on_the_first_of_each_kind(name):
    make = ledger.LIBRARIES[ledger.OURS]()[name]
    seen = set()
    for kind, x, f in ledger.inputs(ledger.RULES[name].least):
        if kind not in seen and kind != "n <= 2f":  # where ours say that there is no guarantee
            seen.add(kind)
            call = ledger.partial(ledger._answer, make, x, f)
            assert ledger.judged(ledger.RULES[name], kind, x, f, call) == "agrees"
