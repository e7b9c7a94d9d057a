"""Shares from a Dirichlet distribution, by classes and by clients."""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from lightning_fl import SettingError
from lightning_fl.contract import conf
from lightning_fl.partition.dirichlet import Dirichlet
from tests.partition.dealing import MNIST, targets_of


def counts(by, alpha, targets, n_clients, n_classes, seed=0, min_samples=1):
    """(n_clients, c) table of how many samples of each class each client gets."""
    parts = Dirichlet(by, alpha, min_samples)(targets, n_clients, n_classes, torch.Generator().manual_seed(seed))
    return torch.stack([torch.bincount(targets[part], minlength=n_classes) for part in parts])


# spec/fednga_raga.md N.4, over 200 seeds: median of the smallest, the middle and the largest client, and clients below
# 512 samples.  Here over 30 seeds, with room for chance.
@pytest.mark.parametrize(
    ("alpha", "smallest", "middle", "largest", "below"),
    [(0.6, 169, 570, 1345, 40), (0.4, 112, 554, 1564, 44), (0.2, 37, 508, 1994, 50)],
)
def test_clients_of_the_papers_differ_in_size_as_the_specification_says(alpha, smallest, middle, largest, below):
    targets = targets_of(MNIST)
    tables = [counts("classes", alpha, targets, 100, 10, seed) for seed in range(30)]
    sizes = torch.stack([table.sum(1) for table in tables]).double()
    assert sizes.min(1).values.median() == pytest.approx(smallest, rel=0.3)
    assert sizes.median(1).values.median() == pytest.approx(middle, rel=0.05)
    assert sizes.max(1).values.median() == pytest.approx(largest, rel=0.1)
    assert (sizes < 512).sum(1).double().mean() == pytest.approx(below, abs=2)


@pytest.mark.parametrize(("alpha", "n_clients"), [(2.0, 4), (5.0, 2)])
def test_shares_of_a_class_have_the_moments_of_the_distribution(alpha, n_clients):
    # A share of Dir(alpha 1_M) has mean 1/M and variance (1/M) (1 - 1/M) / (M alpha + 1).
    targets, n = torch.zeros(1000, dtype=torch.int64), 1500
    tables = [counts("classes", alpha, targets, n_clients, 1, seed) for seed in range(n)]
    shares = torch.stack([table[:, 0] for table in tables]).double() / 1000
    variance = (n_clients - 1) / n_clients**2 / (n_clients * alpha + 1)
    assert (shares.mean(0) - 1 / n_clients).abs().max() < 5 * (variance / n) ** 0.5
    assert (shares.var(0) - variance).abs().max() < 5 * variance * (2 / n) ** 0.5


def test_classes_are_cut_independently():
    targets, n = torch.arange(2000) % 2, 600
    tables = torch.stack([counts("classes", 1.0, targets, 2, 2, seed)[0] for seed in range(n)]).double()
    assert abs(float(torch.corrcoef(tables.T)[0, 1])) < 5 / n**0.5


@pytest.mark.parametrize("by", ["classes", "clients"])
def test_large_alpha_comes_near_equal_shares(by):
    table = counts(by, 1e6, targets_of([4000] * 3), 8, 3).double()
    assert (table - 500).abs().max() < (5 if by == "classes" else 5 * 500**0.5)


def test_tiny_alpha_gives_a_class_to_one_client_without_a_number_out_of_range():
    # Of 60 classes none is shared; four clients go empty in (3/4)^60 of the draws.
    table = counts("classes", 1e-6, torch.arange(3000) % 60, 4, 60)
    assert ((table > 0).sum(0) == 1).all()
    table = counts("clients", 1e-6, torch.arange(3000) % 60, 4, 60)
    assert (table.sum(1) == 750).all()


def test_clients_too_small_are_drawn_anew():
    # Gamma(1) each: smallest of 20 shares of 1,000 samples about 2.5, so that 20 samples are rare.
    targets = torch.zeros(1000, dtype=torch.int64)
    free = [int(counts("classes", 2.0, targets, 20, 1, seed).min()) for seed in range(30)]
    held = [int(counts("classes", 2.0, targets, 20, 1, seed, min_samples=10).min()) for seed in range(30)]
    assert min(free) < 10 <= min(held)
    assert all(a == b for a, b in zip(free, held, strict=True) if a >= 10)  # the first draw that will do


def test_a_draw_that_never_comes_is_given_up():
    with pytest.raises(
        SettingError,
        match=r"by classes with alpha=0.01 left one of 100 clients with fewer than 1 samples in 100 draws out of 100; "
        r"raise alpha, lower federation.n_clients or use by=clients",
    ):
        counts("classes", 0.01, targets_of([400] * 10), 100, 10)


def authors_client_wise(sizes, n_clients, alpha, draw):
    """The authors' process in words (spec/boba.md 4.4), one sample after another."""
    total, left = sum(sizes), list(sizes)
    room = [total // n_clients + (1 if i < total % n_clients else 0) for i in range(n_clients)]
    priors = [draw.dirichlet([alpha] * len(sizes)) for _ in range(n_clients)]
    table = [[0] * len(sizes) for _ in range(n_clients)]
    while sum(left):
        client = draw.choice([i for i in range(n_clients) if room[i]])
        z = draw.choice(len(sizes), p=priors[client])
        if not left[z]:
            z = draw.choice([k for k in range(len(sizes)) if left[k]])
        table[client][z] += 1
        room[client] -= 1
        left[z] -= 1
    return table


def test_the_client_wise_process_is_the_authors():
    """How often each table comes out, against the slow loop: 3 clients over classes of 4, 2 and 1 samples."""
    sizes, n = [4, 2, 1], 2000
    targets, draw = targets_of(sizes), np.random.default_rng(0)
    ours = Counter(str(counts("clients", 0.5, targets, 3, 3, seed).tolist()) for seed in range(n))
    theirs = Counter(str(authors_client_wise(sizes, 3, 0.5, draw)) for _ in range(n))
    assert len(theirs) > 10
    for table in ours | theirs:
        a, b = ours[table], theirs[table]
        assert abs(a - b) <= 5 * (a + b) ** 0.5 + 3
    # All together: the statistic has mean about the number of tables and standard deviation the root of twice that.
    statistic = sum((ours[t] - theirs[t]) ** 2 / (ours[t] + theirs[t]) for t in ours | theirs)
    assert statistic < len(ours | theirs) + 5 * (2 * len(ours | theirs)) ** 0.5


@pytest.mark.parametrize(("n_samples", "n_clients"), [(4000, 100), (1003, 20), (7, 7), (9, 5)])
def test_clients_are_of_one_size_by_clients(n_samples, n_clients):
    table = counts("clients", 0.1, torch.arange(n_samples) % 3, n_clients, 3)
    sizes = table.sum(1).tolist()
    assert set(sizes) <= {n_samples // n_clients, n_samples // n_clients + 1}
    assert sum(sizes) == n_samples


def test_bobas_setting_gives_clients_mostly_one_class():
    # MNIST, 100 clients, alpha = 0.01.  A class lasts for ten clients and is wanted by about ten, give or take three:
    # what is wanted too often runs out, so hardly anybody holds a single class.
    table = counts("clients", 0.01, targets_of(MNIST), 100, 10).double()
    purity = table.max(1).values / table.sum(1)
    assert 0.65 < purity.mean() < 0.9
    assert set(table.sum(1).tolist()) == {600.0}


@pytest.mark.parametrize("by", ["classes", "clients"])
def test_too_few_samples_are_refused(by):
    with pytest.raises(
        SettingError, match=r"needs 3 samples for each of 4 clients, got 11 in all; lower federation.n_c"
    ):
        counts(by, 1.0, torch.arange(11) % 2, 4, 2, min_samples=3)


@pytest.mark.parametrize(
    ("by", "alpha", "min_samples", "message"),
    [
        ("samples", 1.0, 1, "dirichlet's by must be one of classes, clients, got 'samples'"),
        ("classes", 0.0, 1, "dirichlet needs 1e-06 <= alpha <= 1000000.0, got 0.0"),
        ("clients", -1.0, 1, "dirichlet needs .*alpha.*, got -1.0"),
        ("classes", math.inf, 1, "dirichlet needs .*alpha.*, got inf"),
        ("classes", math.nan, 1, "dirichlet needs a finite .*alpha.*, got nan"),
        ("classes", 1.0, 0, "dirichlet needs min_samples >= 1, got 0"),
    ],
)
def test_settings_out_of_range(by, alpha, min_samples, message):
    with pytest.raises(SettingError, match=message):
        Dirichlet(by, alpha, min_samples)


def test_conf():
    papers, boba = conf.make("partition", "dirichlet"), conf.make("partition", "dirichlet_clients")
    assert [(p.by, p.alpha, p.min_samples) for p in (papers, boba)] == [("classes", 0.6, 1), ("clients", 0.01, 1)]
