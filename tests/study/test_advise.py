"""Advice for a table of sites."""

from types import SimpleNamespace

import pytest
import torch

from lightning_fl import DataError, SettingError
from lightning_fl.contract import conf
from lightning_fl.study import advise as module
from lightning_fl.study.advise import Advice, Sites, advise, counts_weights

TABLE = "site,a,b\nOne,60,40\nTwo,30,0\nThree,2,8\nFour,10,10\nFive,5,25\n"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text(TABLE)
    return path


def test_counts_and_shares_of_a_total_are_the_same(path, tmp_path):
    sites = Sites.read(path)
    assert (sites.names[0], sites.classes) == ("One", ["a", "b"])
    assert sites.counts.tolist() == [[60, 40], [30, 0], [2, 8], [10, 10], [5, 25]]
    shares = tmp_path / "shares.csv"
    shares.write_text("site,total,a,b\nOne,100,0.6,0.4\nTwo,30,1,0\nThree,10,1,4\nFour,20,50,50\nFive,30,1,5\n")
    assert torch.equal(Sites.read(shares).counts, sites.counts)
    shares.write_text("site,total,a,b,c\nOne,400,1,1,1\nTwo,3,0.5,0.5,0\nThree,1,1,1,1\nFour,7,0,2,5\n")
    found = Sites.read(shares).counts
    assert found.sum(1).tolist() == [400, 3, 1, 7]  # each within one of its share
    assert found.tolist()[1:] == [[2, 1, 0], [1, 0, 0], [0, 2, 5]]


def test_clients_hold_what_the_sites_hold(path):
    sites = Sites.read(path)
    data = sites.data("samples", [0], sites.samples(0))
    data.setup()
    assert data.clients.class_counts().tolist() == Sites.read(path).counts.tolist()
    assert data.federation.byzantine_ids == [0]


def test_of_images_each_class_is_a_digit(path):
    sites = Sites.read(path)
    data = sites.data("samples", [0], sites.samples(0, images=True))
    data.setup()
    assert data.clients.class_counts().tolist() == Sites.read(path).counts.tolist()
    (ones, _), (digits, of) = (
        data.train.gather((data.train.targets == 1).nonzero().flatten()),
        data.test.gather(torch.arange(200)),
    )
    assert (ones.shape, digits.shape) == ((83, 1, 28, 28), (200, 1, 28, 28))
    nearest = torch.cdist(digits.flatten(1), ones.flatten(1)).amin(1)
    assert nearest[of == 1].median() < nearest[of == 0].median()
    with pytest.raises(SettingError, match="images of 10 classes, got more"):
        Sites(["a", "b"], [*"abcdefghijk"], torch.ones(2, 11, dtype=torch.long)).samples(0, images=True)


def test_a_league(path):
    """The largest site holds 100 of 190 samples: the geometric median by samples is its update, whatever it sends."""
    names = ["geometric_median", "bulyan"]
    found = advise(Sites.read(path), 1, names, lambda name, f: conf.make("aggregator", name, f=f), rounds=5)
    assert found.liars == {"largest lie": [0], "smallest lie": [2]}
    assert "needs" in found.left_out["bulyan"]
    robust, fooled = found.accuracy["geometric_median", "uniform"], found.accuracy["geometric_median", "samples"]
    assert robust["largest lie"] > fooled["largest lie"] + 20
    assert found.ranked[0] == ("geometric_median", "uniform")
    assert (found.proven["geometric_median", "uniform"], found.proven["geometric_median", "samples"]) == (2, None)
    assert 'RobustStrategy("geometric_median")' in str(found)
    assert "make nothing of data weights" in str(found)
    assert "One (52.6% of the samples)" in str(found)


def test_a_server_with_samples_and_sites_that_miss_rounds(path, monkeypatch):
    seen = []

    def played(model, data, rule, attack, rounds, **settings):
        data.setup()
        seen.append((data.federation.participation, data.server_samples, rule.needs_server, attack))
        return [SimpleNamespace(accuracy=0.9 if attack is None else 0.4, status="completed")]

    monkeypatch.setattr(module, "train", played)
    given = {"server_samples": 60, "participation": 0.8}
    rules = ["server_only", "krum", "centred_clipping"]
    found = advise(Sites.read(path), 1, rules, lambda name, f: conf.make("aggregator", name, f=f), **given)
    assert {(share, server) for share, server, *_ in seen} == {(0.8, 60)}
    assert found.needs == {"server_only": {"server"}, "krum": {"f"}, "centred_clipping": {"radius"}}
    assert 'RobustStrategy("server_only", model=..., samples=...)' in str(found)
    assert "no rule keeps half of its accuracy with 1 liar among 5 sites" in str(found)
    without = advise(Sites.read(path), 1, ["server_only"], lambda name, f: conf.make("aggregator", name))
    assert without.left_out == {
        "server_only": "server_only needs samples at the server, got none; give --server-samples."
    }


def test_the_advice_says_how_clear_it_is(path):
    found = Advice(Sites.read(path), 1, {"largest lie": [0]})
    for rule, kept, proven in [("sharp", 80.0, None), ("close", 79.0, None), ("proven", 60.0, 2)]:
        found.accuracy[rule, "uniform"] = {"nobody lies": 90.0, "largest lie": kept}
        found.worst[rule, "uniform"], found.proven[rule, "uniform"] = "zero", proven
    found.needs["sharp"] = {"radius"}
    text = str(found)
    assert "least harm in the worst case: sharp with weights=uniform (80.0 under zero)" in text
    assert "within 2 points of it, which is no difference: close (uniform)." in text
    assert "the best with a proof for f=1: proven with weights=uniform (60.0)" in text
    assert "sharp has a radius" in text
    assert "keeps half" not in text


def test_equal_sites_have_one_kind_of_weights(tmp_path):
    (tmp_path / "sites.csv").write_text("site,a,b\nOne,6,4\nTwo,5,5\nThree,2,8\n")
    found = advise(
        Sites.read(tmp_path / "sites.csv"), 1, ["median"], lambda name, f: conf.make("aggregator", name), rounds=2
    )
    assert [*found.accuracy] == [("median", "uniform")]
    assert "make nothing of data weights" not in str(found)


@pytest.mark.parametrize(
    ("rule", "counted"),
    [
        ("average", True),
        ("krum", False),
        ("fltrust", False),
        ("boba", False),
        ("huber", True),
        ("ctma", True),
        ("zeno", None),
    ],
)
def test_whether_data_weights_count(rule, counted):
    assert counts_weights(conf.make("aggregator", rule, f=2), 9) is counted


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (
            "site,a\nOne,1\nTwo,1\nThree,1\n",
            "2 or more classes, and 3 or more sites, got the columns site, a and 3 rows",
        ),
        (TABLE.replace("30,0", "x,0"), "needs a number in every cell, got 'x' for a at Two"),
        (TABLE.replace("30,0", "0,0"), "a sample or more at each site"),
        (TABLE.replace("30,0", "inf,0"), "a sample or more at each site"),
        (TABLE.replace("30,0", "0.2,0"), "a sample or more at each site"),  # rounded: none
    ],
)
def test_refuses_a_table(path, table, error):
    path.write_text(table)
    with pytest.raises(DataError, match=error):
        Sites.read(path)


def test_refuses_half_of_the_sites(path):
    with pytest.raises(SettingError, match="f below half of the sites, got f=3 of 5"):
        advise(Sites.read(path), 3, [], lambda name, f: conf.make("aggregator", name, f=f))


def test_refuses_more_samples_than_the_sites_hold(path):
    with pytest.raises(SettingError, match="the sites' 83 of the rarest class, got server_samples=84; lower it"):
        advise(Sites.read(path), 1, [], lambda name, f: conf.make("aggregator", name), server_samples=84)


def test_it_can_be_stopped(path, monkeypatch):
    """What `train` gives of the runs so far is no answer."""
    runs = [SimpleNamespace(accuracy=0.9, status="completed"), SimpleNamespace(accuracy=0.1, status="interrupted")]
    monkeypatch.setattr(module, "train", lambda *given, **settings: runs)
    with pytest.raises(KeyboardInterrupt):
        advise(Sites.read(path), 1, ["median"], lambda name, f: conf.make("aggregator", name), seeds=3)
    runs[1] = SimpleNamespace(accuracy=None, status="diverged")
    found = advise(Sites.read(path), 1, ["median"], lambda name, f: conf.make("aggregator", name), seeds=2)
    guessed = 1 / len(Sites.read(path).classes)
    assert found.accuracy["median", "uniform"]["nobody lies"] == pytest.approx(100 * (0.9 + guessed) / 2)
