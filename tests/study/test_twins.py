"""How far twins end from their runs, and what a table can carry."""

import numpy as np
import pytest

from lightning_fl.study.twins import Pair, conclusion, drawn, percentile_95


def pairs(*apart, half=None):
    return [Pair(f"cell {i}", 80.0, 80.0 + move, half) for i, move in enumerate(apart)]


def test_the_95th_percentile_is_numpys(draw):
    for size in (1, 2, 7, 40):
        values = np.random.default_rng(size).random(size).tolist()
        assert percentile_95(values) == pytest.approx(np.percentile(values, 95))


def test_a_pair_is_far_where_it_exceeds_the_seeds_interval():
    assert [pair.far for pair in pairs(-2.5, 2.0, -0.1, half=2.0)] == [True, False, False]
    assert not pairs(50.0)[0].far  # one seed has no interval
    assert [pair.apart for pair in pairs(-2.5, 2.0)] == [2.5, 2.0]


def test_a_draw_is_a_share_and_a_larger_one_holds_it():
    cells = [(f"row {i}", f"column {j}") for i in range(5) for j in range(4)]
    few, more = drawn(cells, 0.2), drawn(cells, 0.5)
    assert (len(few), len(more), len(drawn(cells, 0.01))) == (4, 10, 1)
    assert set(few) < set(more) < set(cells)
    assert few == [cell for cell in cells if cell in few]  # in the table's order
    assert set(drawn(reversed(cells), 0.2)) == set(few)
    assert drawn([], 0.5) == []


@pytest.mark.parametrize(
    ("found", "changed", "verdict"),
    [
        (pairs(0.1, 0.3), None, "can carry their conclusions: rounding moves a run by less than 1.0 points."),
        (
            pairs(0.1, 0.3),
            [],
            "can carry their conclusions: .* less than 1.0 points, and each claim keeps its verdict.",
        ),
        (pairs(0.1, 0.3), ["A wins"], "cannot carry what turns with twins in place of runs: A wins."),
        (pairs(3.0, 3.0), [], "cannot carry differences below 3.0 points: .* (1.0 at most)."),
        (
            pairs(3.0, 3.0, half=4.0),
            [],
            "can carry their conclusions: .* half of the seeds' interval, and each claim keeps its verdict.",
        ),
        (pairs(0.0, 0.0, half=0.0), None, "can carry their conclusions: rounding moves a run by nothing."),
        (pairs(0.5, 0.5, half=0.2), None, "cannot carry differences below 0.5 points: .* (0.2 at most)."),
    ],
)
def test_a_table_carries_what_rounding_does_not_move(found, changed, verdict):
    start, _, end = verdict.partition(".*")
    line = conclusion(found, changed)[1]
    assert line.startswith(f"These numbers {start.strip()}")
    assert line.endswith(end.strip())


def test_cells_whose_twins_are_far_are_named_farthest_first():
    text = conclusion(pairs(3.0, 1.0, -9.0, 4.0, 5.0, half=2.0))[0]
    assert text.endswith("farther than the seeds' interval: cell 2 9.0, cell 4 5.0, cell 3 4.0 and 1 more.")
    assert text.startswith("Twins of 5 cells: |run - twin| median 4.0, 95th percentile 8.2 points;")
    assert "farther" not in conclusion(pairs(9.0))[0]
    assert conclusion(pairs(0.0, half=1.0))[0].endswith("farther than the seeds' interval: none.")
