from functools import cache
from math import inf
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_fl import Updates
from lightning_fl.adversary.adaptive import Adaptive, _best
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.min_max import MinMax, MinSum
from lightning_fl.adversary.one_coordinate import OneCoordinate
from lightning_fl.adversary.opt_alie import OptAlie
from lightning_fl.adversary.opt_ipm import OptIpm
from lightning_fl.contract import conf, world
from tests.adversary import reference

H, B, D = 12, 3, 20


def forge(honest, b, rule, attack=Adaptive, weights=None, **settings):
    """Against a rule that is a function of all updates."""
    return attack(**settings).attack(Updates(honest, weights), b, world.context(rule))


def average(updates):
    return updates.rows.mean(0)


def median(updates):
    return updates.rows.median(0).values


def nearest(updates):
    """The row with the least sum of squared distances to its n - B - 2 nearest others, as Krum."""
    lengths = updates.gram.diagonal()
    squares = lengths[:, None] + lengths - 2 * updates.gram
    return updates.rows[squares.sort(1).values[:, : len(squares) - B - 1].sum(1).argmin()]


def short_ones(updates):
    """The mean of the rows that are no longer than the longest of the first H."""
    lengths = updates.gram.diagonal()
    return updates.rows[lengths <= lengths[:H].max()].mean(0)


def trimmed(updates):
    return updates.rows.sort(dim=0).values[B:-B].mean(0)


RULES = [average, median, trimmed, nearest, short_ones]


def honest_rows(seed, shift=0.5):
    return shift + torch.randn(H, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def damage(rule, honest, forged, measure="distance"):
    rows = torch.cat([honest, forged])
    answer, mean = rule(SimpleNamespace(rows=rows, gram=rows @ rows.T)), honest.mean(0)
    return (-(answer @ mean) if measure == "ascent" else (answer - mean).norm()).item()


def lines(honest):
    """Nine directions from the mean, by the slow loop; the first has IPM's scale, its factor 0 lies at 1."""
    x = honest.numpy()
    spread = reference.perturbations(x)
    length = np.sqrt(sum(spread["std"] ** 2))
    coordinate = length * np.eye(D)[spread["std"].argmax()]
    both = [spread["std"], spread["inverse_unit"], spread["inverse_sign"], coordinate]
    return [torch.from_numpy(p) for p in (-x.mean(0), *[way * p for p in both for way in (1.0, -1.0)])]


def skewed_rows(seed):
    """Two classes per client, whose updates differ more than clients do."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randn(6, D, generator=draw, dtype=torch.float64)
    return 0.3 + classes[torch.arange(H) // 2] + 0.2 * torch.randn(H, D, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("measure", ["distance", "ascent"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rows", [honest_rows, skewed_rows])
def test_comes_close_to_the_best_of_a_dense_scan(rule, measure, rows):
    honest = rows(0)
    places = [*np.geomspace(0.05, 20, 40).tolist(), 1e7]
    candidates = [honest.mean(0) + t * p for p in lines(honest) for t in places]
    best = max(damage(rule, honest, c.expand(B, -1), measure) for c in candidates)
    none = damage(rule, honest, honest[:0], measure)
    found = damage(rule, honest, forge(honest, B, rule, damage=measure), measure)
    assert found - none >= 0.95 * (best - none)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rows", [honest_rows, skewed_rows])
@pytest.mark.parametrize("seed", range(2))
def test_is_stronger_than_the_attacks_that_ask_or_do_not(rule, rows, seed):
    honest = rows(seed)
    found = damage(rule, honest, forge(honest, B, rule))
    forged = [attack(honest, B) for attack in (Ipm(), Lie(), MinMax(), MinSum())]
    forged += [attack(direction="inverse_sign")(honest, B) for attack in (MinMax, MinSum)]
    forged += [forge(honest, B, rule, attack) for attack in (OptIpm, OptAlie, OneCoordinate)]
    for rows in forged:
        assert found >= 0.99 * damage(rule, honest, rows)


def test_finds_the_cliff_between_two_points_of_the_grid():
    """Krum's cliff: the grid's factors lie 3.16 times apart, what is found within 2 % of where the copy is dropped."""
    honest = skewed_rows(0)
    row = forge(honest, B, nearest)[0]
    chosen = lambda row: damage(nearest, honest, row.expand(B, -1)) == (row - honest.mean(0)).norm().item()  # noqa: E731
    mean = honest.mean(0)
    assert chosen(row)
    assert not chosen(mean + 1.02 * (row - mean))


@cache
def server():
    return world.oracle()


def answer(rule, rows):
    return rule.aggregate(Updates(rows, ids=range(len(rows))), server()).update


def harm(rule, honest, row):
    return (answer(rule, torch.cat([honest, row.expand(B, -1)])) - honest.mean(0)).double().norm().item()


def candidates(honest, places):
    """Rows on these lines, by the slow loop."""
    x = honest.double()
    spread = reference.perturbations(x.numpy())
    length = np.sqrt(sum(spread["std"] ** 2))
    coordinate = length * np.eye(x.shape[1])[spread["std"].argmax()]
    both = [spread["std"], spread["inverse_unit"], spread["inverse_sign"], coordinate]
    mean = x.mean(0)
    directions = [-mean, *(torch.from_numpy(way * p) for p in both for way in (1.0, -1.0))]
    return [(mean + t * p).to(honest) for p in directions for t in places]


@pytest.mark.parametrize("name", conf.names("aggregator"))
def test_every_rule_suffers_as_much_as_from_the_other_searches_and_a_grid(name):
    honest, rule = world.honest_updates(15), conf.make("aggregator", name, f=B, n_iterations=B)

    def ask(updates):
        return rule.aggregate(updates, server()).answer

    def named(updates):
        updates.ids = range(updates.n)
        return ask(updates)

    found = harm(rule, honest, forge(honest, B, named)[0])
    for attack in (OptIpm, OptAlie):
        assert found >= 0.99 * harm(rule, honest, forge(honest, B, named, attack)[0])
    grid = np.geomspace(0.1, 10, 9).tolist()
    most = max(harm(rule, honest, row) for row in candidates(honest, grid))
    # FLAME's harm jumps up and down along a line, and the first factors may miss the highest of its peaks.
    assert found >= (0.8 if name == "flame" else 0.95) * most


COLUMNS, FEW = 1000, 200
BY_COLUMN = ["trimmed_mean", "median", "meamed", "phocas", "bulyan", "nnm_trimmed_mean", "arc", "aksel", "gas"]


@pytest.mark.parametrize("name", BY_COLUMN)
def test_a_sample_of_the_columns_misleads_nobody(name, monkeypatch):
    """As much harm, to 3 %, as when all questions concern all columns."""
    draw = torch.Generator().manual_seed(0)
    spread = torch.exp(torch.randn(COLUMNS, generator=draw))
    honest = spread * (0.3 + torch.randn(15, COLUMNS, generator=draw))
    rule = conf.make("aggregator", name, f=B, n_groups=50)
    asked = []

    def ask(updates):
        asked.append(updates.held.partial)
        return rule.aggregate(updates, server()).answer

    def harm(forged):
        return (answer(rule, torch.cat([honest, forged])) - honest.mean(0)).norm().item()

    exact = harm(forge(honest, B, ask))
    assert not any(asked)
    monkeypatch.setattr("lightning_fl.adversary.search.probe._COLUMNS", FEW)
    asked.clear()
    sampled = harm(forge(honest, B, ask))
    assert sum(not spread for spread in asked) <= 8  # asked about all columns
    assert sampled >= exact - 0.03 * abs(exact)


def test_known_answer():
    """On a line: the honest 2 and 4 and one attacker; the rule averages what lies in [-5, 8], so -5 is the best.  The
    search gets within 1 % of it."""
    honest = torch.tensor([[2.0], [4.0]], dtype=torch.float64)

    def rule(updates):
        return updates.rows[(updates.rows >= -5) & (updates.rows <= 8)].mean().reshape(1)

    assert -5 <= forge(honest, 1, rule).item() <= -4.9


@pytest.mark.parametrize("evaluations", [88, 160])
@pytest.mark.parametrize("rule", RULES)
def test_asks_no_more_than_it_may(rule, evaluations):
    asked = []
    forge(honest_rows(0), B, lambda updates: asked.append(1) or rule(updates), evaluations=evaluations)
    assert len(asked) <= evaluations
    assert (len(asked) < evaluations) or rule is not average  # nothing is left to be found against averaging


@pytest.mark.parametrize("max_factor", [0.5, 10.0, 11.0, 1e7])
def test_the_largest_factor_is_tried_and_none_beyond(max_factor):
    honest = honest_rows(0)
    forged = forge(honest, B, average, max_factor=max_factor)[0]
    assert max((forged - honest.mean(0)).norm() / p.norm() for p in lines(honest)) >= max_factor
    reach = max((1 + max_factor if i == 0 else max_factor) * p.norm() for i, p in enumerate(lines(honest)))
    assert (forged - honest.mean(0)).norm().item() == pytest.approx(reach.item())


def test_harm_counts_from_the_mean_that_the_server_wants():
    """All weight on the first update: the rule that gives it does no harm, whatever the attack."""
    honest = torch.tensor([[1.0], [3.0]])
    harmless = forge(honest, 1, lambda updates: updates.rows[0], weights=torch.tensor([1.0, 0.0]))
    assert harmless.item() == pytest.approx(1)  # nothing to choose: the mean that it wants, where all lines meet


def test_a_non_finite_answer_is_the_most_damage():
    honest = torch.tensor([[1.0], [3.0]])

    def rule(updates):
        return updates.rows.mean(0) if updates.rows[2] > -10 else torch.full((1,), torch.nan)

    forged = forge(honest, 1, rule).item()
    assert -100 < forged <= -10  # the smallest factor tried that breaks it


def test_of_equal_harms_the_first_place_counts_whatever_the_last_digit():
    harm = 0.1756120152586839
    tried = [{0.0: 0.1, 3.5: harm, 10.0: harm * (1 + 1e-15)}, {0.0: 0.1, 2.0: harm * (1 + 2e-15)}]
    assert _best(tried) == (0, 3.5)
    assert _best([{0.0: -inf, 1.0: -inf}]) == (0, 0.0)
    assert _best([{0.0: 0.1, 1.0: inf, 2.0: inf}]) == (0, 1.0)
