"""report.html: one page that says what a run was and how it went, without anything from outside."""

import os
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from lightning_fl.run import page
from lightning_fl.run.saved import SavedRun
from tests import saved
from tests.browser import beyond, needs_chromium

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Checks that tags close in order, and keeps text, tables, links and pictures."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.rows, self.links, self.pictures = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        attributes = dict(attributes)
        assert not any(name.startswith("on") for name in attributes)
        self.links += [attributes["href"]] if "href" in attributes else []
        self.pictures += [attributes["src"]] if "src" in attributes else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def write(folder, *runs, default=None):
    """Write the page of runs and take it apart."""
    pictures = page.write([SavedRun.read(run) for run in runs], folder, default)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//|@import|url\(|<script|<link", re.sub(r"base64,[^\"]*", "", text))
    parsed = Page(text)
    assert len(parsed.pictures) == len(pictures)
    assert all(picture.startswith("data:image/png;base64,iVBOR") for picture in parsed.pictures)
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in pictures.values())
    return parsed, list(pictures)


def test_one_run(tmp_path):
    folder = saved.run(tmp_path / "run")
    shown, pictures = write(folder, folder, default=saved.changed(saved.CONFIG, aggregator=None))
    assert pictures == ["recall", "drop", "confusion", "weights", "clients"]
    assert "boba, 2 ipm, mnist_5k" in shown.text
    assert (
        "boba against 2 ipm, on mnist_5k: 75.0% accuracy after 2 rounds; class 1 lost most, 25.0 points against plain "
        "averaging without attack; Byzantine clients had 25.0% of the weight, 40.0% in a plain average."
    ) in shown.text
    assert "Completed after 2 rounds." in shown.text
    for row in [
        ["aggregator", "boba: f=1, p_min=-0.5", "average"],
        ["status", "completed after 2 rounds, 1.2 s"],
        ["accuracy", "75.00% (round 2)"],
        ["max-recall-drop", "25.00%"],
        ["weight given", "75.00% honest, 25.00% Byzantine (mean over rounds)"],
        ["communication", "1,000 floats up, 2,000 down, 30 sample gradients"],
        ["class", "recall", "reference", "drop"],
        ["0", "100.00%", "90.00%", "-10.00%"],
        ["1", "50.00%", "75.00%", "25.00%"],
    ]:
        assert row in shown.rows, row
    (settings,) = (text for text in shown.text if "aggregator.p_min=-0.5" in text)
    assert "trainer.max_steps=4" in settings.splitlines()
    assert {"config.yaml", "metrics.csv", "summary.json", "weights.csv", "recall.png"} <= {
        link.removeprefix("./") for link in shown.links
    }
    assert all((folder / link).exists() for link in shown.links)


@pytest.mark.drawn
def test_a_phone_shows_pictures_with_legible_letters(tmp_path):
    """A page of 390 pixels leaves 358: a picture's letters of 10 points (150 per inch) are 11 pixels high there."""
    folder = saved.run(tmp_path / "run")
    write(folder, folder)
    least = re.findall(r"min-width: (\d+)px", (folder / "report.html").read_text(encoding="utf-8"))
    widths = [int.from_bytes(path.read_bytes()[16:20]) for path in folder.glob("*.png")]
    assert sorted(map(int, least)) == sorted(round(width * 11 / (10 * 150 / 72)) for width in widths)
    assert max(map(int, least)) <= 358


@needs_chromium
@pytest.mark.drawn
def test_pages_do_not_scroll_sideways(tmp_path):
    """One run's, with long names, and that of two compared."""
    long = saved.changed(saved.CONFIG, reference="a_long_name_" * 10)
    folders = [saved.run(tmp_path / "a", long), saved.run(tmp_path / "b", saved.changed(long, aggregator__f=2))]
    write(folders[0], folders[0], default=saved.CONFIG)
    write(tmp_path, *folders, default=saved.CONFIG)
    assert beyond(tmp_path, folders[0] / "report.html", tmp_path / "report.html") == [0] * 4


def test_where_it_comes_from_is_shown(tmp_path):
    provenance = {"command": "train.py <x>", "date": "2026-01-02", "versions": "torch 2", "processor": "one"}
    folder = saved.run(tmp_path / "run", summary=saved.SUMMARY | {"provenance": provenance})
    shown, _ = write(folder, folder)
    assert [[key, value] for key, value in provenance.items()] == shown.rows[-4:]
    assert ["seed", "0"] in shown.rows


def test_compared_runs_are_sorted_by_the_settings_that_differ(tmp_path):
    folders = [saved.run(tmp_path / str(f), saved.changed(saved.CONFIG, aggregator__f=f)) for f in (10, 2, 1)]
    shown, _ = write(tmp_path / "all", *folders)
    header = next(i for i, row in enumerate(shown.rows) if row[0] == "run")
    assert [row[0] for row in shown.rows[header + 1 :][:3]] == ["f=1", "f=2", "f=10"]


def test_a_rule_beyond_its_guarantee_says_so(tmp_path):
    folder = saved.run(tmp_path / "run", summary=saved.SUMMARY | {"guarantee": "no guarantee: needs n >= 2f + 3"})
    shown, _ = write(folder, folder)
    assert "The rule: no guarantee: needs n >= 2f + 3." in shown.text


def test_a_diverged_run_names_round_and_reason(tmp_path):
    folder = saved.run(tmp_path / "run", summary=saved.SUMMARY | saved.DIVERGED)
    shown, _ = write(folder, folder)
    assert "Diverged after 2 rounds; round 3: <the> loss is nan." in shown.text
    assert ["accuracy", "none; 75.0% when last measured (round 2)"] in shown.rows
    assert "max-recall-drop" not in {row[0] for row in shown.rows}
    assert '<p class="bad">Diverged' in (folder / "report.html").read_text()


def test_a_run_that_diverged_at_once(tmp_path):
    nothing = {"last_evaluation": {"round": None, "accuracy": None, "recall": None, "mrd": None}, "confusion": None}
    nothing |= {"rounds": 0, "mean_weight": {"honest": None, "byzantine": None}}
    summary = saved.SUMMARY | saved.DIVERGED | nothing
    folder = saved.run(tmp_path / "run", metrics=None, weights=None, summary=summary)
    shown, pictures = write(folder, folder)
    assert pictures == []
    assert "accuracy" not in {row[0] for row in shown.rows}


@pytest.mark.drawn
def test_settings_are_escaped(tmp_path):
    config = saved.changed(saved.CONFIG, reference='<b>&"x"</b>')
    folder = saved.run(tmp_path / "run", config)
    shown, _ = write(folder, folder, default=saved.CONFIG)
    assert ["reference", '<b>&"x"</b>', "null"] in shown.rows
    assert "<b>" not in (folder / "report.html").read_text()


def test_links_are_to_files_beside_the_page_whatever_their_names(tmp_path):
    folder = saved.run(tmp_path / "run #1?")
    for name in ("javascript:alert(1)", "50%.png", 'a "b" & #c?.txt'):
        (folder / name).write_text("")
    for where in (folder, tmp_path):
        shown, _ = write(where, folder)
        assert all(link.startswith("./") for link in shown.links)
        found = {(where / unquote(link)).resolve() for link in shown.links}
        assert found == {path for path in folder.iterdir() if path != where / "report.html"}


def test_links_across_drives_are_whole(tmp_path, monkeypatch):
    def apart(path, start):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    folder = saved.run(tmp_path / "run")
    monkeypatch.setattr(os.path, "relpath", apart)
    page.write([SavedRun.read(folder)], tmp_path)
    assert (folder / "summary.json").as_uri() in Page((tmp_path / "report.html").read_text("utf-8")).links


def test_the_defaults_are_said_to_be(tmp_path):
    folder = saved.run(tmp_path / "run")
    assert "The defaults." in write(folder, folder, default=saved.CONFIG)[0].text


def test_a_class_without_test_samples_is_not_measured(tmp_path):
    recall = {"recall": [None, 0.5]}
    last = saved.SUMMARY["last_evaluation"] | recall
    summary = saved.SUMMARY | recall | {"last_evaluation": last, "classes": ["ant", "bee"]}
    folder = saved.run(tmp_path / "run", summary=summary)
    shown, pictures = write(folder, folder)
    assert ["0 ant", "no samples", "90.00%", "no samples"] in shown.rows
    assert "drop" in pictures
    shown, _ = write(tmp_path, folder, saved.run(tmp_path / "other"))
    assert ["0", "100.00%", "no samples"] in shown.rows  # names that one run lacks are left out


def test_many_classes_are_folded(tmp_path):
    many = {"recall": [0.5] * 30}
    last = saved.SUMMARY["last_evaluation"] | many
    summary = saved.SUMMARY | many | {"last_evaluation": last, "reference_recall": [0.75] * 30, "confusion": None}
    folder = saved.run(tmp_path / "run", summary=summary)
    shown, _ = write(folder, folder)
    assert ["29", "50.00%", "75.00%", "25.00%"] in shown.rows
    assert "<details open>" not in (folder / "report.html").read_text()


@pytest.mark.drawn
@pytest.mark.parametrize("n", [2, 6])
def test_several_runs(tmp_path, n):
    attacks = [{"_target_": f"attack.{name}.{name.title()}"} for name in "abcdef"[:n]]
    folders = [
        saved.run(tmp_path / str(i), saved.changed(saved.CONFIG, adversary=attack)) for i, attack in enumerate(attacks)
    ]
    saved.run(
        tmp_path / "0",
        saved.changed(saved.CONFIG, adversary=attacks[0]),
        [{"round": 1, "loss": 0.5}],
        summary=saved.SUMMARY | saved.DIVERGED | {"mean_weight": {"honest": None, "byzantine": None}},
    )
    shown, pictures = write(tmp_path / "all", *folders, default=saved.CONFIG)
    assert pictures == ["accuracy", "recall", "drop", "weights"]
    assert f"{n} runs compared, boba, mnist_5k" in shown.text
    assert "a: diverged after 2 rounds; round 3: <the> loss is nan; accuracy 75.0% in round 2." in shown.text
    assert "b: completed after 2 rounds." in shown.text
    header = next(row for row in shown.rows if row[0] == "run")
    a, b = (dict(zip(header, next(row for row in shown.rows if row[0] == run), strict=True)) for run in "ab")
    assert (a["accuracy (%)"], a["weight honest (%)"]) == ("–", "–")
    assert (b["accuracy (%)"], b["max-recall-drop (%)"]) == ("75.00", "25.00")
    assert any(text.startswith("The same for all: rounds 2; ") for text in shown.text)
    text = (tmp_path / "all" / "report.html").read_text(encoding="utf-8")
    parts = [
        "Most accurate: b, 75.0%",
        "without a result: a.",
        "a: diverged after 2",
        "<h2>Accuracy",
        "<h2>Results",
        "<h2>Set",
    ]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert ["0", "", *["100.00%"] * (n - 1)] in shown.rows
    assert all((tmp_path / "all" / link).resolve().exists() for link in shown.links)
    assert "./../1/metrics.csv" in shown.links


def test_backdoors_have_their_success_rate(tmp_path):
    measured = {"attack": {"success_rate": 0.625, "lifespan": 7}}
    last = {"last_evaluation": saved.SUMMARY["last_evaluation"] | measured}
    rows = [saved.METRICS[0], saved.METRICS[1] | {"attack/success_rate": 0.625}]
    folder = saved.run(tmp_path / "a", metrics=rows, summary=saved.SUMMARY | measured | last)
    alone = write(folder, folder)[0].rows
    assert ["attack success rate", "62.50%"] in alone
    assert ["attack lifespan", "7 rounds"] in alone
    other = saved.run(tmp_path / "b", saved.changed(saved.CONFIG, seed=1))
    shown, pictures = write(tmp_path / "all", folder, other)
    assert pictures == ["accuracy", "recall", "drop", "attack", "weights"]
    compared = [row for row in shown.rows if row[0] in ("run", "seed=0", "seed=1")]
    for column, values in [("attack success rate (%)", ["62.50", "–"]), ("attack lifespan (rounds)", ["7", "–"])]:
        assert [row[compared[0].index(column)] for row in compared[1:]] == values


def test_a_private_run_has_its_epsilon(tmp_path):
    summary = saved.SUMMARY | {"privacy": {"epsilon": 2.5, "delta": 1e-5, "uploads": 3}}
    folder = saved.run(tmp_path / "a", summary=summary)
    alone = write(folder, folder)[0].rows
    assert ["privacy", "epsilon 2.5 at delta 1e-05, 3 uploads of a client at most"] in alone
    other = saved.run(tmp_path / "b", saved.changed(saved.CONFIG, seed=1))
    compared = [row for row in write(tmp_path / "all", folder, other)[0].rows if row[0] in ("run", "seed=0", "seed=1")]
    assert [row[compared[0].index("epsilon")] for row in compared[1:]] == ["2.5", "–"]


@pytest.mark.drawn
def test_runs_without_weights_beside_others_say_why(tmp_path):
    none = {"mean_weight": {"honest": None, "byzantine": None}}
    summaries = {"a": {}, "median": none, "lost": none | {"status": "diverged"}}
    runs = {k: SavedRun.read(saved.run(tmp_path / k, summary=saved.SUMMARY | more)) for k, more in summaries.items()}
    axes = page.compare(runs, "all")["weights"].axes[0]
    assert {"none: not a weighting", "none: diverged"} <= {text.get_text() for text in axes.texts}


def test_runs_without_reference_or_weights_have_no_such_pictures(tmp_path):
    summary = saved.SUMMARY | {"mrd": None, "mean_weight": {"honest": None, "byzantine": None}}
    folders = [saved.run(tmp_path / name, summary=summary) for name in "ab"]
    assert write(tmp_path / "all", *folders)[1] == ["accuracy", "recall"]
