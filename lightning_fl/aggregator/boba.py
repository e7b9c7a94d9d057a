"""BOBA: fit the honest subspace, find the honest simplex, drop what lies outside, average.

Wenxuan Bao, Jun Wu, Jingrui He. BOBA: Byzantine-Robust Federated Learning with Label Skewness. AISTATS 2024.
arXiv:2208.12932.

Under label skew the expected honest updates lie in the simplex spanned by the c class updates.  Everything the rule
asks (PCA, residuals, label distributions) depends on inner products between client rows and class rows, so it runs on
their Gram matrix and touches d twice, however often it fits.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb, inf
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from jaxtyping import Float64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator
from lightning_fl.errors import DivergedError, SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.decomposition import eigh
from lightning_fl.updates.updates import Updates

Stage1 = Literal["alternating", "exhaustive", "none"]
_EPS = torch.finfo(torch.float64).eps
_MOST_SUBSETS = 100_000


@dataclass(frozen=True)
class BobaSolution:
    """What BOBA found.

    Args:
        coefficients: (n + c,) with update = sum over client rows and class rows of coefficient * row.
        accepted: (n,) which clients lie near the honest simplex and were averaged.
        label_distributions: (n, c) estimated p_hat; rows sum to 1; NaN for a non-finite client.
        fits: How many PCA fits stage 1 made, the first on the class rows included (the paper's k); of an exhaustive
            search one per subset.
        explained: Share of the fitted rows' variance that lies in the subspace, in [0, 1].
        loss_ratio: Trimmed reconstruction loss of the alternating fit over that of the best subset (Figure 5), where
            both were made; else None.
    """

    coefficients: Float64[Tensor, " m"]
    accepted: Tensor
    label_distributions: Float64[Tensor, "n c"]
    fits: int
    explained: float
    loss_ratio: float | None = None


@dataclass(frozen=True)
class _Subspace:
    """An affine subspace fitted to some rows: m = mean @ rows, orthonormal axes = axes.T @ rows."""

    mean: Float64[Tensor, " m"]
    axes: Float64[Tensor, "m r"]
    codes: Float64[Tensor, "m r"]
    residuals: Float64[Tensor, " m"]
    spectrum: Float64[Tensor, " s"]  # squared singular values of the centred subset, ascending

    @classmethod
    def fit(cls, gram: Float64[Tensor, "m m"], subset: Tensor, rank: int) -> "_Subspace":
        """Fit PCA with ``rank`` components to the rows in ``subset`` (TrSVD_r); encode all rows."""
        size = len(subset)
        mean = gram.new_zeros(len(gram))
        mean[subset] = 1 / size
        offset = gram @ mean
        centred = gram - offset[:, None] - offset + mean @ offset  # <x_i - m, x_j - m>
        spectrum, vectors = eigh(centred[subset][:, subset])
        values, vectors = spectrum[-rank:], vectors[:, -rank:]
        solid = values > values[-1] * size * _EPS  # directions that are more than rounding
        values, vectors = values[solid], vectors[:, solid]
        axes = gram.new_zeros(len(gram), len(values))
        axes[subset] = (vectors - vectors.mean(0)) / values.sqrt()
        codes = centred @ axes
        lengths = centred.diagonal()
        # Rounding is charged to the row: a huge row is never near the subspace just because digits cancel.
        residuals = (lengths - codes.square().sum(1)).clamp(min=0) + 64 * _EPS * lengths
        return cls(mean, axes, codes, residuals, spectrum.clamp(min=0))

    def explained(self, rank: int) -> float:
        """Share of the subset's variance that lies in its first ``rank`` directions; 1 where there is none."""
        total = self.spectrum.sum().item()
        return self.spectrum[-rank:].sum().item() / total if total > 0 else 1.0

    def trimmed_loss(self, clients: Tensor, keep: int) -> float:
        """Sum of the ``keep`` least residuals of the clients."""
        return float(self.residuals[clients].sort().values[:keep].sum())


def boba_solution(
    gram: Float64[Tensor, "m m"],
    n_classes: int,
    f: int,
    p_min: float = -0.5,
    max_iter: int = 20,
    stage_1: Stage1 = "alternating",
    stage_2: bool = True,
) -> BobaSolution:
    """Solve BOBA (Algorithm 1) on inner products; see `Boba` for the settings.

    Args:
        gram: Inner products of n client rows followed by c class rows, about any origin; one in the middle of the
            client rows keeps most digits.
        n_classes: c.
        f: Byzantine clients tolerated.
        p_min: Smallest label share accepted.
        max_iter: Most passes of stage 1.
        stage_1: How the subspace is found.
        stage_2: Whether clients outside the simplex are left out.

    Returns:
        Combination, accepted clients, estimated label distributions and the number of fits.

    Raises:
        DivergedError: If class updates are not finite, or no update is.
    """
    n, c = len(gram) - n_classes, n_classes
    finite = gram.diagonal().isfinite()
    if not finite[n:].all():
        classes = (~finite[n:]).nonzero().flatten().tolist()
        raise DivergedError(f"boba needs finite class updates, got non-finite ones for classes {classes}.")
    if not finite[:n].any():
        raise DivergedError("boba needs at least one finite update, got none.")
    # A non-finite client is out: never a neighbour, never accepted.
    gram = gram.masked_fill(~(finite & finite[:, None]), 0.0)
    clients = finite[:n].nonzero().flatten()
    keep = min(n - f, len(clients))

    servers = torch.arange(n, n + c, device=gram.device)
    subspace, fits = _alternate(gram, clients, servers, keep, 0 if stage_1 == "none" else max_iter)
    loss_ratio = None
    if stage_1 == "exhaustive":
        alternating = subspace
        subspace, fits = _search(gram, clients, keep, c - 1)
        best = subspace.trimmed_loss(clients, keep)
        loss_ratio = alternating.trimmed_loss(clients, keep) / best if best > 0 else 1.0

    # Stage 2: the label distributions solve [codes of classes; 1] p_hat = [code of client; 1].
    # At any scale: pinv must cut off neither the codes beside the ones nor these.
    size = F.pad(subspace.codes[n:].flatten().abs(), (0, 1)).max()
    codes = torch.cat([subspace.codes / size.where(size > 0, 1), gram.new_ones(n + c, 1)], dim=1)
    p_hat = codes[:n] @ torch.linalg.pinv(codes[n:])
    p_hat[~finite[:n]] = torch.nan
    low = p_hat.min(dim=1).values.nan_to_num(nan=-torch.inf)
    accepted = finite[:n] & (low >= p_min)
    if accepted.sum() < keep:
        accepted = torch.zeros_like(accepted).index_fill(0, low.argsort(descending=True, stable=True)[:keep], True)
    if not stage_2:
        accepted = finite[:n]
    coefficients = subspace.mean + subspace.axes @ subspace.codes[:n][accepted].mean(0)
    return BobaSolution(coefficients, accepted, p_hat, fits, subspace.explained(c - 1), loss_ratio)


def _alternate(gram: Tensor, clients: Tensor, servers: Tensor, keep: int, max_iter: int) -> tuple[_Subspace, int]:
    """Fit the class rows, then in turn find the ``keep`` nearest clients and fit those, until they stay the same."""
    subspace, nearest = _Subspace.fit(gram, servers, len(servers) - 1), None
    for fits in range(1, max_iter + 1):
        order = subspace.residuals[clients].argsort(stable=True)
        found = clients[order[:keep]].sort().values
        if nearest is not None and torch.equal(found, nearest):
            return subspace, fits
        nearest = found
        subspace = _Subspace.fit(gram, nearest, len(servers) - 1)
    return subspace, max_iter + 1


def _search(gram: Tensor, clients: Tensor, keep: int, rank: int) -> tuple[_Subspace, int]:
    """Fit every subset of ``keep`` clients; return the fit with the least trimmed reconstruction loss."""
    best, least, fits = None, torch.inf, 0
    for subset in combinations(clients.tolist(), keep):
        subspace = _Subspace.fit(gram, torch.tensor(subset, device=gram.device), rank)
        loss = subspace.trimmed_loss(clients, keep)
        fits += 1
        if best is None or loss < least:
            best, least = subspace, loss
    assert best is not None
    return best, fits


class Boba(Aggregator):
    """Aggregate by BOBA (Algorithm 1): mu_hat = mean over accepted clients of their projection on the honest subspace.

    Stage 1 minimises the trimmed reconstruction loss sum_i r_i ||x_i - Pi_P(x_i)||^2 over affine subspaces P of
    dimension c - 1 and sets of n - f clients, in turn, from the subspace of the class updates.  Stage 2 writes every
    client as sum_z p_hat_z gamma_z with sum p_hat = 1 inside P and accepts it where min_z p_hat_z >= p_min; if fewer
    than n - f are accepted, it takes the n - f clients with the largest min_z p_hat_z.

    Its server rows are the class updates gamma_z, from the server's samples of class z by the clients' process.  Its
    weights are the clients' coefficients; with those of the class updates they sum to 1, and need not lie in [0, 1].
    It trusts the clients that it accepts, equally.

    Args:
        f: Byzantine clients tolerated, 0 <= f <= n - c.
        p_min: Smallest label share accepted, at most 0 (the paper recommends -0.5 to 0).  -inf accepts every finite
            client.
        max_iter: Most passes of stage 1, at least 1 (the authors' code: 20; the paper has no cap).
        stage_1: "alternating"; "exhaustive" tries all C(n, f) subsets (BOBA-ES, at most 100,000); "none" keeps the
            subspace of the class updates (BOBA w.o. stage 1).
        stage_2: False averages the projections of all clients (BOBA w.o. stage 2).

    Note:
        The authors' code returns the last subset's fit in exhaustive search; here it is the best subset's, as the
        paper says.  An update with NaN or inf counts as one of the f; further ones leave fewer than n - f.

    Two classes, four honest clients and one that sends -10 times their mean.  Its projection is accepted (it lies at a
    vertex), its length off the simplex is gone:

    >>> clients = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.3, 0.7], [-4.5, -5.5]])
    >>> class_updates = torch.eye(2)
    >>> Boba(f=1)(clients, class_updates)
    tensor([0.5600, 0.4400])
    """

    needs_server = "updates"

    least = "f + c"

    def __init__(
        self,
        f: NonNegativeInt,
        p_min: Annotated[float, Ge(-inf), Le(0)] = -0.5,
        max_iter: PositiveInt = 20,
        stage_1: Stage1 = "alternating",
        stage_2: bool = True,
    ):
        self.f = f
        self.p_min = p_min
        self.max_iter = max_iter
        self.stage_1 = stage_1
        self.stage_2 = stage_2

    def check(self, n: int, n_classes: int) -> None:
        """Compare f with n and c, and count the subsets; see the base class."""
        c, f = n_classes, self.f
        if c < 2:
            raise SettingError(
                f"boba needs class updates of 2 classes or more, got {c}; a plain matrix needs them beside it: "
                f"rule(updates, class_updates)."
            )
        super().check(n, c)
        if self.stage_1 == "exhaustive" and comb(n, f) > _MOST_SUBSETS:
            raise SettingError(
                f"boba's exhaustive search fits every subset: C({n}, {f}) = {comb(n, f):.3g} of them, at most "
                f"{_MOST_SUBSETS:,} are served; use aggregator.stage_1=alternating or fewer clients."
            )

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Say whether any n - 2f honest clients can span c classes (Assumption 5.3); see the base class."""
        if n >= 2 * self.f + n_classes:
            return None
        return f"no guarantee: needs n >= 2f + c, has {n} updates for f = {self.f} and c = {n_classes}"

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        class_updates = server.class_updates
        gram = updates.centred_with(class_updates).gram
        solution = boba_solution(
            gram, len(class_updates), self.f, self.p_min, self.max_iter, self.stage_1, self.stage_2
        )
        accepted = int(solution.accepted.sum())
        diagnostics = {"fits": solution.fits, "accepted": accepted, "explained": solution.explained}
        if solution.loss_ratio is not None:
            diagnostics["loss_ratio"] = solution.loss_ratio
        weights, of_classes = solution.coefficients.tensor_split([updates.n])
        return Aggregation(
            updates.combination(weights, class_updates, of_classes),
            weights,
            diagnostics,
            solution.accepted.double() / accepted,
            label_distributions=solution.label_distributions,
        )
