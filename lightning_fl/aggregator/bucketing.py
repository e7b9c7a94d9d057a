"""Bucketing: average small random groups of clients first, so that a rule for equal clients meets less skew.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from lightning_fl.aggregator.base import Aggregator
from lightning_fl.aggregator.guarantee import told_fewer
from lightning_fl.aggregator.mixing import Mixing
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt, PositiveInt
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.updates import Updates

Leftover = Literal["drop", "keep"]


def draw_buckets(n: int, s: int, generator: torch.Generator, leftover: Leftover = "drop") -> Sequence[Tensor]:
    """Cut a random permutation of the n clients into buckets of s; see `Bucketing`."""
    buckets = torch.randperm(n, generator=generator, device=generator.device).split(s)
    return buckets[: _count(n, s, leftover)]


def _count(n: int, s: int, leftover: Leftover) -> int:
    return n // s if leftover == "drop" else -(-n // s)


def _check(n: int, s: int, rule: str) -> None:
    if s > n:
        raise SettingError(f"{rule} needs s <= n, got s={s} and n={n}; lower aggregator.s or add clients.")


def bucket_matrix(buckets: Sequence[Tensor], weights: Float64[Tensor, " n"]) -> Float64[Tensor, "m n"]:
    """Write the weighted means of buckets as the matrix M of M X.

    A client counts as often as a bucket holds it.  Where a bucket's weights are all 0 its clients count equally.

    >>> bucket_matrix([torch.tensor([0, 2]), torch.tensor([1])], torch.tensor([0.3, 0.6, 0.1]).double())
    tensor([[0.7500, 0.0000, 0.2500],
            [0.0000, 1.0000, 0.0000]], dtype=torch.float64)
    """
    n, m = len(weights), len(buckets)
    rows, clients = _places(buckets, weights.device)
    totals = bucket_weights(buckets, weights)
    shares = torch.where(totals[rows] > 0, weights[clients], 1)
    totals = torch.where(totals > 0, totals, rows.bincount(minlength=m))
    return weights.new_zeros(m * n).index_add_(0, rows * n + clients, shares / totals[rows]).view(m, n)


def bucket_weights(buckets: Sequence[Tensor], weights: Float64[Tensor, " n"]) -> Float64[Tensor, " m"]:
    """Add up the weights in each bucket.

    >>> bucket_weights([torch.tensor([0, 2]), torch.tensor([1])], torch.tensor([0.25, 0.5, 0.25]).double())
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    rows, clients = _places(buckets, weights.device)
    return weights.new_zeros(len(buckets)).index_add_(0, rows, weights[clients])


def _places(buckets: Sequence[Tensor], device: torch.device) -> tuple[Int64[Tensor, " k"], Int64[Tensor, " k"]]:
    """Number the bucket and the client of each entry."""
    sizes = torch.tensor([len(bucket) for bucket in buckets])
    return torch.arange(len(buckets)).repeat_interleave(sizes).to(device), torch.cat(list(buckets)).to(device)


def resample_buckets(n: int, s: int, generator: torch.Generator) -> Sequence[Tensor]:
    """Cut a random permutation of s copies of the n clients into n buckets of s; see `Resampling`."""
    clients = torch.arange(n, device=generator.device).repeat(s)
    return clients[torch.randperm(n * s, generator=generator, device=generator.device)].split(s)


class Bucketing(Mixing):
    """Ask another rule about the means of random buckets of s clients (Algorithm 1).

    y_i = (1/s) sum of x_pi(k) over k in ((i - 1) s, i s], pi a random permutation.  A bucket averages by the clients'
    shares in the data, which the paper has equal, and weighs as much as its clients; a client left out has weight 0.
    An update with NaN or inf spoils its own bucket only.

    Args:
        rule: Aggregates the means.  Its settings are about buckets: one bad client spoils one, so its f stays the same.
        s: Clients per bucket, at most n.
        leftover: What becomes of the n mod s clients that fill no bucket: "drop" leaves them out of this round,
            floor(n/s) buckets (the BOBA authors' code); "keep" gives them a smaller one, ceil(n/s) buckets (Karimireddy
            et al.).

    >>> from lightning_fl.aggregator.average import Average
    >>> Bucketing(Average(), s=2)(torch.tensor([[0.0, 1.0], [2.0, 5.0]]))
    tensor([1., 3.])
    """

    order_matters = True  # it decides who meets whom

    def __init__(self, rule: Aggregator, s: PositiveInt = 2, leftover: Leftover = "drop"):
        super().__init__(rule)
        self.s = s
        self.leftover = leftover

    def n_mixed(self, n: int) -> int:
        """Count the buckets; see the base class."""
        return _count(n, self.s, self.leftover)

    def least_n(self, n_classes: int) -> int:
        """As many as make the buckets that the rule needs, and s at least; see the base class."""
        buckets = self.rule.least_n(n_classes)
        return max(self.s, self.s * buckets if self.leftover == "drop" else self.s * (buckets - 1) + 1)

    def check(self, n: int, n_classes: int) -> None:
        """Check s, and the rule for the number of buckets; see the base class."""
        _check(n, self.s, "bucketing")
        try:
            super().check(n, n_classes)
        except SettingError as error:
            asked = f"The rule is asked about {self.n_mixed(n)} buckets: {n} clients, {self.s} in each."
            raise SettingError(f"{error}  {asked}") from error

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Pass on what the rule says of that many buckets; see the base class."""
        text = super().guarantee(n, n_classes)
        return text and text.replace("updates", "buckets")

    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Average the buckets; see the base class."""
        buckets = draw_buckets(updates.n, self.s, server.generator("bucketing"), self.leftover)
        shares = bucket_weights(buckets, updates.data_weights)
        return bucket_matrix(buckets, updates.data_weights), shares if shares.any() else None


class Resampling(Mixing):
    """Ask another rule about the means of n random buckets of s clients (versions 1 and 2 of the paper).

    Each client is in at most s buckets, and may be in one more than once.  A bucket averages by the clients' shares in
    the data; the buckets weigh the same.

    Args:
        rule: Aggregates the means.  Its settings are about buckets: one bad client spoils up to s of them, so its f
            should be s f.
        f: Byzantine clients tolerated, below n.  It says what is guaranteed and changes nothing else.
        s: Clients per bucket, at most n.

    >>> from lightning_fl.aggregator.average import Average
    >>> Resampling(Average(), f=0, s=1)(torch.tensor([[2.0, 6.0]]))
    tensor([2., 6.])
    """

    least = "f + 1"
    order_matters = True

    def __init__(self, rule: Aggregator, f: NonNegativeInt, s: PositiveInt = 2):
        super().__init__(rule)
        self.f = f
        self.s = s

    def n_spoilt(self, b: int) -> int:
        """Each may be in s buckets; see the base class."""
        return self.s * b

    def least_n(self, n_classes: int) -> int:
        """As many as the rule needs, and s; see the base class."""
        return max(self.s, super().least_n(n_classes))

    def check(self, n: int, n_classes: int) -> None:
        """Check s, and the rule; see the base class."""
        _check(n, self.s, "resampling")
        super().check(n, n_classes)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Compare the buckets that f clients spoil with what the rule tolerates; see the base class."""
        spoilt = self.n_spoilt(self.f)
        fewer = told_fewer(self.rule, spoilt, f"f = {self.f} spoils {spoilt} buckets")
        if fewer is not None:
            return fewer
        text = super().guarantee(n, n_classes)
        return text and text.replace("updates", "buckets")

    def mix(
        self, updates: Updates, server: ServerOracle
    ) -> tuple[Float64[Tensor, "m n"], Float64[Tensor, " m"] | None]:
        """Average the buckets; see the base class."""
        buckets = resample_buckets(updates.n, self.s, server.generator("resampling"))
        return bucket_matrix(buckets, updates.data_weights), updates.data_weights.new_ones(len(buckets))
