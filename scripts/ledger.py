"""The same rules in several libraries, on inputs that are easy to get wrong, beside slow loops typed from the papers.

    python scripts/ledger.py [--out LEDGER.md]

Libraries that are not installed are left out: byzfl, byzpy, krum, flwr and acfa-flower are looked for.  Each is called
as its own documentation recommends, with the f that the input has.
"""

import gc
import logging
import sys
import time
import warnings
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from lightning_fl import files  # noqa: E402
from lightning_fl.aggregator.bulyan import Bulyan  # noqa: E402
from lightning_fl.aggregator.geometric_median import GeometricMedian  # noqa: E402
from lightning_fl.aggregator.krum import Krum, MultiKrum  # noqa: E402
from lightning_fl.aggregator.median import Median  # noqa: E402
from lightning_fl.aggregator.trimmed_mean import TrimmedMean  # noqa: E402
from lightning_fl.tables import markdown  # noqa: E402
from lightning_fl.yardstick.honest import drawn  # noqa: E402
from lightning_fl.yardstick.worst import UNBOUNDED, worst  # noqa: E402
from tests.aggregator import reference, reference_peers  # noqa: E402

Array = np.ndarray
Call = Callable[[Any], Any]  # a rule with its f, on (n, d) rows of torch
OURS = "lightning-fl"


@dataclass(frozen=True)
class Rule:
    """A rule as its paper has it.

    Args:
        loop: The slow loop, from (n, d) rows and f.
        readings: Other loops that a library may document, by name.
        least: The fewest rows for an f.
        tolerance: Share of the rows' spread by which an answer in float32 and in float64 may be off.
        cost: What the rule minimises, of rows and a point: an answer that costs no more than the loop's agrees, too.
    """

    loop: Callable[[Array, int], Array]
    readings: dict[str, Callable[[Array, int], Array]]
    least: Callable[[int], int]
    tolerance: tuple[float, float] = (1e-3, 1e-7)
    cost: Callable[[Array, Array], float] | None = None


def _equal(n: int) -> Array:
    return np.full(n, 1 / n)


def _best(fewer: int, m: Callable[[int, int], int]) -> Callable[[Array, int], Array]:
    return lambda x, f: reference.mean_of_best(x, reference.krum_scores(x, f, fewer), m(len(x), f))


def _bulyan_of_means(x: Array, f: int) -> Array:
    """As krum documents it: n - 2f - 2 means of Multi-Krum, without the row nearest to each; trimmed mean."""
    left, means = list(range(len(x))), []
    for i in range(len(x) - 2 * f - 2):
        peers = len(x) - i - f - 2
        scores = [sum(sorted(float(sum((x[i] - x[j]) ** 2)) for j in left if j != i)[:peers]) for i in left]
        chosen = [left[k] for k in np.argsort(scores, kind="stable")[:peers]]
        means.append(x[chosen].mean(0))
        left.remove(min(chosen, key=lambda row: float(sum((x[row] - means[-1]) ** 2))))
    return reference.trimmed_mean(np.array(means), f)


RULES = {
    "median": Rule(
        lambda x, f: reference.median(x, "mean"),
        {
            "the lower of two middle values": lambda x, f: reference.median(x, "lower"),
            "the upper of two middle values": lambda x, f: reference.median(x, "upper"),
        },
        lambda f: 1,
    ),
    "trimmed mean": Rule(reference.trimmed_mean, {}, lambda f: 2 * f + 1),
    "Krum": Rule(
        _best(2, lambda n, f: 1),
        {"n - f - 1 neighbours": _best(1, lambda n, f: 1)},
        lambda f: 2 * f + 3,
    ),
    "Multi-Krum": Rule(
        _best(2, lambda n, f: n - f),
        {"n - f - 1 neighbours": _best(1, lambda n, f: n - f)},
        lambda f: 2 * f + 3,
    ),
    "Bulyan": Rule(
        lambda x, f: reference_peers.bulyan(x, f)[0],
        {
            "Krum scores computed once": lambda x, f: reference_peers.bulyan(x, f, once=True)[0],
            "means of Multi-Krum, trimmed": _bulyan_of_means,
        },
        lambda f: 4 * f + 3,
    ),
    "geometric median": Rule(
        lambda x, f: reference.geometric_median(x, _equal(len(x)), steps=1000),
        {
            "3 steps of Weiszfeld's, smoothed": lambda x, f: reference.rfa(x, _equal(len(x)), 0.1, 3),
            "100 steps of Weiszfeld's, smoothed": lambda x, f: reference.rfa(x, _equal(len(x)), 0.1, 100),
        },
        lambda f: 1,
        (1e-3, 1e-3),  # of an iteration that stops
        lambda x, y: float(reference.distance_sum(y, x, _equal(len(x)))),
    ),
}


def _ours() -> dict[str, Callable[[int, int], Call]]:
    return {
        "median": lambda n, f: Median("mean"),
        "trimmed mean": lambda n, f: TrimmedMean(f),
        "Krum": lambda n, f: Krum(f),
        "Multi-Krum": lambda n, f: MultiKrum(f),
        "Bulyan": lambda n, f: Bulyan(f),
        "geometric median": lambda n, f: GeometricMedian(),
    }


def _byzfl() -> dict[str, Callable[[int, int], Call]]:
    import byzfl

    return {
        "median": lambda n, f: byzfl.Median(),
        "trimmed mean": lambda n, f: byzfl.TrMean(f),
        "Krum": lambda n, f: byzfl.Krum(f),
        "Multi-Krum": lambda n, f: byzfl.MultiKrum(f),
        "geometric median": lambda n, f: byzfl.GeometricMedian(),
    }


def _byzpy() -> dict[str, Callable[[int, int], Call]]:
    from byzpy.aggregators.coordinate_wise.median import CoordinateWiseMedian
    from byzpy.aggregators.coordinate_wise.trimmed_mean import CoordinateWiseTrimmedMean
    from byzpy.aggregators.geometric_wise.geometric_median import GeometricMedian as Geometric
    from byzpy.aggregators.geometric_wise.krum import Krum as TheirKrum
    from byzpy.aggregators.geometric_wise.krum import MultiKrum as TheirMultiKrum

    def of(rule: Any) -> Call:
        return lambda x: rule.aggregate(list(x))

    return {
        "median": lambda n, f: of(CoordinateWiseMedian()),
        "trimmed mean": lambda n, f: of(CoordinateWiseTrimmedMean(f)),
        "Krum": lambda n, f: of(TheirKrum(f)),
        "Multi-Krum": lambda n, f: of(TheirMultiKrum(f, q=n - f)),
        "geometric median": lambda n, f: of(Geometric()),
    }


def _krum() -> dict[str, Callable[[int, int], Call]]:
    from krum.primitives.aggregators import bulyan, geometric_median, krum, multikrum, trimmed_mean
    from krum.primitives.aggregators import median as theirs

    return {
        "median": lambda n, f: theirs.Median.aggregate,
        "trimmed mean": lambda n, f: lambda x: trimmed_mean.TrimmedMean.aggregate(x, f=f),
        "Krum": lambda n, f: lambda x: krum.Krum.aggregate(x, n=n, f=f),
        "Multi-Krum": lambda n, f: lambda x: multikrum.MultiKrum.aggregate(x, n=n, f=f, m=n - f),
        "Bulyan": lambda n, f: lambda x: bulyan.Bulyan.aggregate(x, n=n, f=f),
        "geometric median": lambda n, f: lambda x: geometric_median.GeometricMedian.aggregate(x, n=n, f=f),
    }


def _flwr() -> dict[str, Callable[[int, int], Call]]:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import strategy
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages ask which task sends them
    logging.getLogger("flwr").setLevel(logging.CRITICAL)

    def of(one: Any) -> Call:
        def call(x: Any) -> Any:
            replies: list[Any] = []
            for row in np.asarray(x):
                content = RecordDict({"arrays": ArrayRecord([row]), "metrics": MetricRecord({"num-examples": 1})})
                asked = Message(RecordDict(), dst_node_id=len(replies) + 1, message_type="train")
                asked.metadata.__dict__["_message_id"] = str(len(replies))
                replies.append(Message(content, reply_to=asked))
            arrays, _ = one.aggregate_train(1, replies)
            if arrays is None:
                raise ValueError("skipped: too few replies")
            return arrays.to_numpy_ndarrays()[0]

        return call

    return {
        "median": lambda n, f: of(strategy.FedMedian()),
        "trimmed mean": lambda n, f: of(
            strategy.FedTrimmedAvg(beta=(f + 0.25) / n)
        ),  # it cuts int(beta n), and takes beta < 0.5
        "Krum": lambda n, f: of(strategy.Krum(num_malicious_nodes=f)),
        "Multi-Krum": lambda n, f: of(strategy.MultiKrum(num_malicious_nodes=f, num_nodes_to_select=n - f)),
        "Bulyan": lambda n, f: of(strategy.Bulyan(num_malicious_nodes=f)),
    }


def _acfa() -> dict[str, Callable[[int, int], Call]]:
    from acfa_flower import Rule as Name
    from acfa_flower import aggregate

    if which("acfa-agg") is None:
        raise ImportError("acfa-agg not found, the kernel that its package runs but does not contain")

    def of(rule: Any, f: int, **more: Any) -> Call:
        return lambda x: aggregate([[np.asarray(row)] for row in x], rule=rule, f=f, **more)[0]

    return {
        "trimmed mean": lambda n, f: of(Name.TRIMMED, f, beta=(max(f, 1), n)),
        "Krum": lambda n, f: of(Name.KRUM, f),
        "Bulyan": lambda n, f: of(Name.BULYAN, f),
    }


LIBRARIES = {
    OURS: _ours,
    "byzfl": _byzfl,
    "byzpy": _byzpy,
    "krum": _krum,
    "flwr": _flwr,
    "acfa-flower": _acfa,
}
KINDS = ("ordinary", "tied", "offset 1e4", "least n", "NaN", "inf", "1e30", "one entry of NaN", "one row", "n <= 2f")
HOSTILE = {"NaN": np.nan, "inf": np.inf, "1e30": 1e30, "one entry of NaN": np.nan}


def inputs(least: Callable[[int], int]) -> Iterator[tuple[str, Array, int]]:
    """Give 200 inputs: for each of `KINDS` ten draws in float32 and in float64, with f of 1 to 3."""
    for k, kind in enumerate(KINDS):
        for dtype in (np.float32, np.float64):
            for seed in range(10):
                draw, f = np.random.default_rng([k, seed]), 1 + seed % 3
                n, d = 4 * f + 4 + seed % 2, 3 + seed
                if kind == "least n":
                    n = max(least(f), 2 * f + 1)
                elif kind == "one row":
                    n, f = 1, 0
                elif kind == "n <= 2f":
                    n = 2 * f
                x = draw.standard_normal((n, d))
                if kind == "tied":
                    x[n // 2 :] = x[n // 2]
                elif kind == "offset 1e4":
                    x = 1e4 + x
                elif kind == "one entry of NaN":
                    x[-f:, 0] = np.nan
                elif kind in HOSTILE:
                    x[-f:] = HOSTILE[kind]
                yield kind, x.astype(dtype), f


def judged(rule: Rule, kind: str, x: Array, f: int, call: Callable[[], Any]) -> str:
    """Tell what a library makes of one input: agrees, fault, raises, NaN, or the name of a reading.

    Rows of NaN, inf or 1e30 have no loop: there an answer agrees that is finite and lies, in each coordinate, within
    ten times the honest rows' range.  Where the paper's bound on n fails, it
    is right to refuse; an answer is named a reading.
    """
    proven = len(x) >= rule.least(f)
    try:
        answer = np.asarray(call(), np.float64).reshape(-1)
    except Exception:
        return "raises" if proven else "agrees"
    if not np.isfinite(answer).all():
        return "NaN"
    honest = x.astype(np.float64)[: len(x) - f] if kind in HOSTILE else x.astype(np.float64)
    span = max(float(np.ptp(honest, axis=0).max()), 1e-9)
    if kind in HOSTILE:
        inside = (answer >= honest.min(0) - 10 * span).all() and (answer <= honest.max(0) + 10 * span).all()
        return "agrees" if inside else "fault"
    if not proven:
        alone = kind == "one row" and np.allclose(answer, honest[0], rtol=1e-5)
        return "agrees" if alone else "answers below its bound"
    if rule.cost is not None and rule.cost(honest, answer) <= (1 + 1e-6) * rule.cost(honest, rule.loop(honest, f)):
        return "agrees"
    single, size = x.dtype == np.float32, np.abs(honest).max()
    for name, loop in {"agrees": rule.loop, **rule.readings}.items():
        away = np.abs(answer - loop(honest, f)).max()
        if away <= rule.tolerance[not single] * span + 1e-6 * single * size:
            return name
        if away <= rule.tolerance[0] * span + 1e-6 * size:
            return "float64 computed in float32" if name == "agrees" else f"{name}, in float32"
    return "fault"


def milliseconds(call: Call) -> float:
    """CPU time for 25 rows of 10,000 numbers in float32: the median of five calls, after one more."""
    x, took = torch.randn(25, 10_000, generator=torch.Generator().manual_seed(0)), []
    for _ in range(6):
        start = time.process_time()
        call(x.clone())
        took.append(1e3 * (time.process_time() - start))
    return median(took[1:])


def _answer(make: Callable[[int, int], Call], x: Array, f: int) -> Any:
    return make(len(x), f)(torch.tensor(x))


def row(rule: Rule, make: Callable[[int, int], Call]) -> tuple[list[str], Counter[tuple[str, str]]]:
    """One library's cells of one rule, and how often what but agreement was seen, by verdict and kind of input."""
    seen: Counter[tuple[str, str]] = Counter()
    for kind, x, f in inputs(rule.least):
        seen[judged(rule, kind, x, f, partial(_answer, make, x, f)), kind] += 1
    verdicts: Counter[str] = Counter()
    for (verdict, _), times in seen.items():
        verdicts[verdict if verdict in ("agrees", "fault", "raises", "NaN") else "reading"] += times
    call = make(15, 3)
    found = worst(lambda x: torch.as_tensor(call(x)), drawn("skewed", 12, 3, 10), 3, budget=500)
    kappa = "unbounded" if found.kappa >= UNBOUNDED else f"{found.kappa:.3f}"
    cells = [str(verdicts[name]) for name in ("agrees", "reading", "fault", "raises", "NaN")]
    return [*cells, kappa, f"{milliseconds(make(25, 5)):.1f}"], seen


def main() -> None:
    """Ask every library, and write the ledger."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "LEDGER.md")
    parser.add_argument("--note", default="", help="a last sentence, such as on what a library ran")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    rows, notes, lists = [], [], []
    for library, offer in LIBRARIES.items():
        try:
            lists.append(f"{library} {version(library)}")
            rules = offer()
            gc.freeze()  # Flower collects garbage after each array: it need not look at what was imported
        except (PackageNotFoundError, ImportError) as error:
            lists[-1:] = [] if isinstance(error, PackageNotFoundError) else lists[-1:]
            notes.append(f"- {library}: not measured: {error}")
            continue
        for name, make in rules.items():
            try:
                cells, seen = row(RULES[name], make)
            except Exception as error:  # the library cannot be asked at all
                notes.append(f"- {library}, {name}: not measured: {str(error.__cause__ or error).splitlines()[0]}")
                continue
            rows.append([name, library, *cells])
            more = [f"{verdict} ({kind}, {times})" for (verdict, kind), times in seen.items() if verdict != "agrees"]
            if more:
                notes.append(f"- {library}, {name}: {'; '.join(more)}")
            print(rows[-1], file=sys.stderr)
    rows.sort(key=lambda cells: [*RULES].index(cells[0]))
    header = ["rule", "library", "agrees", "reading", "fault", "raises", "NaN", "kappa", "ms"]
    table = markdown(header, rows)
    lists += [f"torch {torch.__version__}", f"NumPy {np.__version__}"]
    foot = f"Measured by `python scripts/ledger.py` with {', '.join(lists)}.  {given.note}".rstrip()
    files.write(given.out, _HEAD + "\n".join([*table, "", "## What was seen", "", *notes, "", foot, ""]))


_HEAD = """# A ledger of robust rules

The same rules in several libraries, each on 200 inputs in float32 and float64: ordinary ones, tied rows, rows at an
offset of 1e4, as few rows as the paper allows, f rows of NaN, inf or 1e30, or with one entry of NaN, one row alone,
n <= 2f.  A slow float64 loop typed from the paper says what is right (`tests/aggregator/reference.py`).

* **agrees**: as the loop; for hostile rows finite and within ten times the honest rows' range; where the paper's bound
  on n fails, it refuses.
* **reading**: another loop that the library documents, float64 rows computed in float32, or an answer below the
  paper's bound on n.
* **fault**: neither.  **raises**: an error where the rule is defined.  **NaN**: an answer that is not finite; some
  libraries leave it to the caller to keep NaN out, and we count it, since a client may send it.
* **kappa**: what ByzAttack-1 finds on 12 honest clients of two classes each and 3 forged rows, d = 10 (`fl.worst`);
  less is better.
* **ms**: CPU time for 25 rows of 10,000 numbers in float32, one thread, from what its call takes (Flower: messages).

"""


if __name__ == "__main__":
    main()
