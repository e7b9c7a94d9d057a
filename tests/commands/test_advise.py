"""lightning-fl advise on a table of sites."""

from lightning_fl.commands import advise
from lightning_fl.study.advise import Advice, Sites


def test_prints_and_writes_a_page(tmp_path, monkeypatch, typed):
    (tmp_path / "sites.csv").write_text("site,a,b\n<One>,6,4\nTwo,3,0\nThree,2,8\n")

    def played(sites: Sites, f, rules, make, *, rounds, seeds, images, server_samples, participation):
        assert make("trimmed_mean", f).f == 1
        assert [*rules] == [*advise.RULES, *advise.WITH_SAMPLES]
        assert (rounds, seeds, images, server_samples, participation) == (60, 1, False, 20, 0.8)
        found = Advice(
            sites, f, {"largest lie": [0]}, {("median", "uniform"): {"nobody lies": 90.0, "largest lie": 80.0}}
        )
        found.worst["median", "uniform"], found.proven["median", "uniform"] = "zero", 1
        return found

    monkeypatch.setattr("lightning_fl.study.advise.advise", played)
    given = ["--server-samples", "20", "--participation", "0.8"]
    code, out, err = typed(advise.main, "lightning-fl advise", "sites.csv", *given, "--out", ".")
    assert code == 0
    assert "10/10" in err
    assert "least harm in the worst case: median with weights=uniform (80.0 under zero)" in out
    assert "&lt;One&gt; (43.5% of the samples)" in (tmp_path / "advice.html").read_text()


def test_refuses_what_is_no_file(typed):
    code, _, err = typed(advise.main, "lightning-fl advise", "nowhere.csv")
    assert code == 2
    assert "advise needs a CSV file of the sites, got nowhere.csv, which is not there" in err
