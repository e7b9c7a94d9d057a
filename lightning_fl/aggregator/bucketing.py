"""Bucketing: average small random groups of clients first, so that a rule for equal clients meets less skew.

Sai Praneeth Karimireddy, Lie He, Martin Jaggi. Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
ICLR 2022. arXiv:2006.09365.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from lightning_fl.aggregator.base import Aggregation, Aggregator, Wrapper
from lightning_fl.errors import SettingError, check_choice
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates import Updates, check_rows

Leftover = Literal["drop", "keep"]


def draw_buckets(n: int, s: int, generator: torch.Generator, leftover: Leftover = "drop") -> Sequence[Tensor]:
    """Cut a random permutation of the n clients into buckets of s; see `bucketing` for arguments and errors."""
    _check(n, s, leftover)
    buckets = torch.randperm(n, generator=generator, device=generator.device).split(s)
    return buckets[: _count(n, s, leftover)]


def _count(n: int, s: int, leftover: Leftover) -> int:
    return n // s if leftover == "drop" else -(-n // s)


def _check(n: int, s: int, leftover: Leftover) -> None:
    if not 1 <= s <= n:
        raise SettingError(f"bucketing needs 1 <= s <= n, got s={s} and n={n}; lower aggregator.s or add clients.")
    check_choice("bucketing's leftover", leftover, get_args(Leftover))


def _means(rows: Float[Tensor, "n d"], buckets: Sequence[Tensor]) -> Float[Tensor, "m d"]:
    means = rows.new_empty(len(buckets), rows.shape[1])
    for mean, bucket in zip(means, buckets, strict=True):
        first, *others = bucket.tolist()
        mean.copy_(rows[first])
        for other in others:
            mean.add_(rows[other])
        mean.div_(len(bucket))
    return means


def bucketing(
    updates: Float[Tensor, "n d"], s: int, generator: torch.Generator, leftover: Leftover = "drop"
) -> Float[Tensor, "m d"]:
    """Average random buckets of s updates, y_i = (1/s) sum of x_pi(k) over k in ((i - 1) s, i s] (Algorithm 1).

    An update with NaN or inf spoils its own bucket only.

    Args:
        updates: One update a client.
        s: Clients a bucket, 1 <= s <= n.
        generator: Draws the permutation pi.
        leftover: What becomes of the n mod s clients that fill no bucket: "drop" leaves them out of this round,
            floor(n/s) buckets (the BOBA authors' code); "keep" gives them a smaller one, ceil(n/s) buckets (Karimireddy
            et al.).

    Returns:
        One mean a bucket, for any rule to aggregate.

    Raises:
        SettingError: If updates are not a floating-point matrix, or s or leftover is out of range.

    >>> bucketing(torch.tensor([[0.0, 1.0], [2.0, 5.0]]), s=2, generator=torch.Generator())
    tensor([[1., 3.]])
    """
    check_rows(updates, "updates")
    return _means(updates, draw_buckets(len(updates), s, generator, leftover))


class Bucketing(Wrapper):
    """Ask another rule about bucket means instead of clients; see `bucketing`.

    A bucket's weight, its clients share equally; a client left out has weight 0.

    Args:
        rule: The rule.  Its settings are about buckets: one bad client spoils a bucket, so its f stays the same.
        s: Clients a bucket, 1 <= s <= n.
        leftover: "drop" or "keep".
    """

    def __init__(self, rule: Aggregator, s: int, leftover: Leftover):
        super().__init__(rule)
        self.s = s
        self.leftover = leftover

    def check(self, n: int, n_classes: int) -> None:
        """Check s and leftover, and the rule for the number of buckets; see the base class."""
        _check(n, self.s, self.leftover)
        self.rule.check(_count(n, self.s, self.leftover), n_classes)

    def guarantee(self, n: int, n_classes: int) -> str | None:
        """Pass on what the rule says of so many buckets; see the base class."""
        text = self.rule.guarantee(_count(n, self.s, self.leftover), n_classes)
        return text and text.replace("updates", "buckets")

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        buckets = draw_buckets(updates.n, self.s, server.generator("bucketing"), self.leftover)
        shares = torch.stack([updates.data_weights[bucket].sum() for bucket in buckets])
        inner = Updates(_means(updates.rows, buckets), shares)
        result = self.rule.aggregate(inner, server)

        def shared(of_buckets: Tensor | None) -> Tensor | None:
            if of_buckets is None:
                return None
            of_clients = of_buckets.new_zeros(updates.n)
            for bucket, value in zip(buckets, of_buckets, strict=True):
                of_clients[bucket] = value / len(bucket)
            return of_clients

        return Aggregation(result.update, shared(result.weights), result.diagnostics, shared(result.trust))
