"""Each rule agrees with its slow float64 loop, typed from the equation, on updates that are easy to get wrong."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from lightning_fl import Aggregator
from lightning_fl.aggregator.aksel import Aksel
from lightning_fl.aggregator.average import Average
from lightning_fl.aggregator.bulyan import Bulyan
from lightning_fl.aggregator.caf import Caf
from lightning_fl.aggregator.clipped_sum import ClippedSum
from lightning_fl.aggregator.fltrust import Fltrust
from lightning_fl.aggregator.krum import Krum, MultiKrum
from lightning_fl.aggregator.meamed import Meamed
from lightning_fl.aggregator.median import Median
from lightning_fl.aggregator.medoid import Medoid
from lightning_fl.aggregator.monna import Monna
from lightning_fl.aggregator.normalized import Normalized
from lightning_fl.aggregator.phocas import Phocas
from lightning_fl.aggregator.rfa import Rfa
from lightning_fl.aggregator.server_mixture import ServerMixture
from lightning_fl.aggregator.sign_vote import SignVote
from lightning_fl.aggregator.smea import Smea
from lightning_fl.aggregator.trimmed_mean import TrimmedMean
from lightning_fl.contract.case import case
from tests.aggregator import reference
from tests.aggregator import reference_peers as peers

N, D = 11, 6


@dataclass(frozen=True)
class Case:
    """A rule beside its loop.

    Args:
        rule: As a user makes it.
        loop: Of the (n, d) rows and, if there are some, the server's.
        server: (d,) or (c, d) rows of the server.
        weights: (n,) data weights; the loop knows its own.
        size: Of what is added up: float32 and float64 may be off by 1e-6 and 1e-12 of it, and of the result.
        tolerance: Other such shares.
        problems: Which of `reference.PROBLEMS`.
        n: How many updates.
    """

    rule: Aggregator
    loop: Callable[..., np.ndarray]
    server: np.ndarray | None = None
    weights: Sequence[float] | None = None
    size: float = 0.0
    tolerance: tuple[float, float] = (1e-6, 1e-12)
    problems: Sequence[str] = tuple(reference.PROBLEMS)
    n: int = N


SERVER = reference.problem("random", N + 1, D)[-1] + 0.5


A_TO_F = [
    *[
        Case(Aksel(f), lambda x, f=f: reference.aksel(x, f), tolerance=(2e-6, 1e-9), size=1)
        for f in (0, 3, (N - 1) // 2)
    ],
    *[
        Case(Average(), lambda x, w=weights: reference.average(x, w), weights=weights, tolerance=(1e-5, 1e-12))
        for weights in (None, range(N))
    ],
    *[Case(Bulyan(2, once), lambda x, once=once: peers.bulyan(x, 2, once)[0]) for once in (False, True)],
    *[
        Case(Caf(f), lambda x, f=f: reference.caf(x, f)[0], tolerance=(2e-6, 1e-9), size=1)
        for f in (0, 3, (N - 1) // 2)
    ],
    *[
        Case(
            ClippedSum(radius, penalty),
            partial(reference.clipped_sum, radius=radius, p=p),
            size=size,
            tolerance=(1e-5, 1e-12),
        )
        for radius, size in [(1e-4, 1e-4), (2.5, 2.5), (1e4, 1e3)]
        for penalty, p in [("linf", 1), ("l2", 2), ("huber", 2), ("l1", np.inf)]
    ],
    *[
        Case(Fltrust(), reference.fltrust, server=length * SERVER, size=length * np.linalg.norm(SERVER))
        for length in (1e-3, 1.0, 1e3)
    ],
]
G_TO_Z = [
    *[Case(Krum(f), lambda x, f=f: reference.krum(x, f)) for f in (0, 3, N - 3)],
    *[
        Case(Krum(f, "n-f-1"), lambda x, f=f: reference.mean_of_best(x, reference.krum_scores(x, f, 1), 1))
        for f in (0, 3, N - 2)
    ],
    *[
        Case(MultiKrum(f, m), lambda x, f=f, m=m: reference.multi_krum(x, f, m), size=1)
        for f in (0, 3, N - 3)
        for m in (None, 1, 4, N)
    ],
    *[
        Case(
            MultiKrum(f, None, "n-f-1"),
            lambda x, f=f: reference.mean_of_best(x, reference.krum_scores(x, f, 1), N - f),
            size=1,
        )
        for f in (0, 3, N - 2)
    ],
    Case(Medoid(), reference.medoid),
    *[
        Case(Median(middle), lambda x, middle=middle: reference.median(x, middle), tolerance=(1e-6, 1e-15), n=n)
        for middle in ("lower", "upper", "mean")
        for n in (3, 10, N, 300)
    ],
    *[
        Case(kind(f), lambda x, f=f, loop=loop: loop(x, f), size=1, n=n)
        for kind, loop in [
            (TrimmedMean, reference.trimmed_mean),
            (Meamed, peers.mean_around_median),
            (Phocas, peers.phocas),
        ]
        for f in (0, 1, 4, 5)
        for n in (N, N + 1)
    ],
    *[
        Case(SignVote(), peers.sign_vote, n=n, problems=("random", "rank-deficient", "badly scaled", "offset"))
        for n in (1, 4, N)
    ],
    *[
        Case(
            Smea(f), lambda x, f=f: reference.smallest_eigenvalue_average(x, f)[0], size=1, tolerance=(2e-6, 1e-9), n=9
        )
        for f in (0, 3, 4)
    ],
    *[
        Case(Normalized(), lambda x, w=weights: reference.normalized_average(x, w), weights=weights, size=1)
        for weights in (None, range(N))
    ],
    *[
        Case(
            Rfa(nu, steps),
            lambda x, nu=nu, steps=steps: reference.rfa(x, np.arange(1.0, N + 1), nu, steps),
            weights=range(1, N + 1),
            size=1,
            tolerance=(1e-5, 1e-9),
        )
        for nu in (1e-6, 0.1, 2.0)
        for steps in (1, 3, 8)
    ],
    *[
        Case(Monna(f, trusted), lambda x, f=f, i=trusted: reference.monna(x, f, i), size=1, tolerance=(2e-6, 1e-9))
        for f in (0, 3, 5)
        for trusted in (0, 4, N - 1)
    ],
    *[
        Case(
            Monna(f, include_trusted=include),
            lambda x, server, f=f, include=include: reference.monna_of_server(x, f, server, include),
            server=SERVER,
            size=1,
            tolerance=(2e-6, 1e-9),
        )
        for f in (0, 3, 5)
        for include in (True, False)
    ],
    *[
        Case(
            ServerMixture(Average(), share),
            lambda x, classes, share=share: reference.server_mixture(x.mean(0), classes, share),
            server=reference.problem("random", N + 4, D)[N:],
            size=1,
        )
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ],
]
CASES = [
    pytest.param(rule, id=f"{rule.rule.spelled()}-{i}") for cases in (A_TO_F, G_TO_Z) for i, rule in enumerate(cases)
]


@pytest.mark.parametrize("given", CASES)
def test_agrees_with_the_loop(given):
    for problem, dtype in product(given.problems, (torch.float32, torch.float64)):
        x = torch.as_tensor(reference.problem(problem, given.n, D), dtype=dtype)
        server = [] if given.server is None else [torch.as_tensor(given.server, dtype=dtype)]
        weights = None if given.weights is None else torch.tensor(given.weights, dtype=dtype)
        before = [rows.clone() for rows in (x, *server)]
        with case(problem, dtype):
            result = given.rule(x, *server, weights=weights)
            assert result.dtype == dtype
            assert all(map(torch.equal, (x, *server), before))
            expected = given.loop(*(rows.double().numpy() for rows in (x, *server)))
            tolerance = given.tolerance[dtype == torch.float64]
            np.testing.assert_allclose(result.numpy(), expected, rtol=tolerance, atol=tolerance * given.size)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("rule", "loop"),
    [
        (Bulyan(15), lambda x: peers.bulyan(x, 15)[0]),
        (Meamed(15), lambda x: peers.mean_around_median(x, 15)),
        (Phocas(15), lambda x: peers.phocas(x, 15)),
        (TrimmedMean(15), lambda x: reference.trimmed_mean(x, 15)),
    ],
)
def test_agrees_with_the_loop_in_16_bits(rule, loop, dtype, draw):
    x = torch.randn(115, 50, generator=draw).to(dtype)
    before, found = x.clone(), rule(x)
    assert found.dtype == dtype
    assert torch.equal(x, before)
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        found, torch.as_tensor(loop(x.double().numpy())).to(dtype), rtol=tolerance, atol=tolerance
    )
