"""Inner products and distances one pair at a time, and rows to try them on."""

import torch

OFFSETS = [0.0, 1e3, 1e6, 1e7]


def slow_gram(rows):
    """All inner products, one pair at a time."""
    return torch.tensor([[float((a.double() * b.double()).sum()) for b in rows] for a in rows], dtype=torch.float64)


def slow_distances(rows):
    """All squared distances, one pair at a time."""
    return torch.tensor([[float((a - b).square().sum()) for b in rows] for a in rows], dtype=torch.float64)


def shifted(n, d, offset, draw, hostile=False):
    """Rows of spread 1 about a common offset, which float64 holds exactly; hostile: 7 of 1e30 and one NaN."""
    rows = (torch.randn(n, d, generator=draw, dtype=torch.float64) * 2**20).round() / 2**20
    rows += (offset * torch.randn(d, generator=draw, dtype=torch.float64)).round()
    if hostile:
        rows[3:10] = 1e30
        rows[3:6] *= -1
        rows[12, d // 2] = torch.nan
    return rows, [i for i in range(n) if not (hostile and (3 <= i < 10 or i == 12))]
