"""One report in every form."""

import sys
from dataclasses import replace

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from lightning_fl import plot
from lightning_fl.study.report import Report, Section
from tests.browser import beyond, needs_chromium

TABLE = Section(
    "Of | two", ["rule", "IPM"], [["boba", "**9**<br>8"], ["<b>", "7"]], {(1, 1)}, ["`a` wins"], ("p", "It.")
)
WHOLE = Report("Mine", ["Read | this."], [Section("empty", picture=("q", "")), TABLE], [["rule", "n"], ["=1+1", 1 / 3]])


def test_in_the_terminal():
    assert WHOLE.terminal().splitlines() == [
        "Read | this.",
        "Of | two",
        "  rule         IPM",
        "  ----------------",
        "  boba  **9**<br>8",
        "   <b>           7",
        "  `a` wins",
    ]


def test_in_markdown():
    body = [
        *["Read | this.", "", r"## Of \| two", "", "| rule | IPM |", "| --- | ---: |"],
        *["| boba | **9**<br>8 |", "| &lt;b> | **7** |", "", "- `a` wins", ""],
    ]
    assert WHOLE.markdown().splitlines() == ["# Mine", "", *body[:-1]]
    assert WHOLE.markdown(level=2) == "\n".join(body).replace("## Of", "### Of")


def test_in_latex_html_and_csv():
    assert WHOLE.latex().startswith("% Mine\n% Read | this.\n% Of | two\n")
    assert r"\textless{}b\textgreater{} & \textbf{7} \\" in WHOLE.latex()
    assert "\n% `a` wins\n" in WHOLE.latex()
    html = WHOLE.html()
    assert "<td><b>9</b><br>8</td>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert "<p><code>a</code> wins</p>" in html
    assert WHOLE.csv() == "rule,n\n'=1+1,0.333333\n"


def test_in_files(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/p_panel_3.pdf").touch()  # of an earlier report
    figures = {"p": [Figure((1, 1)), Figure((1, 1))], "z": [Figure((1, 1))], "none": []}
    whole = replace(WHOLE, figures=figures)
    paths = whole.write(tmp_path / "out", "all", brief=Report("B"))
    endings, pictures = ("md", "csv", "tex", "html"), ("p_panel_1", "p_panel_2", "z")
    names = [*(f"all.{end}" for end in endings), *(f"{name}.{end}" for name in pictures for end in ("png", "pdf"))]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    assert paths[0].read_text().count("![](") == 3
    assert paths[2].read_text() == "% B\n"
    page = paths[3].read_text()
    assert page.index("Of | two") < page.index("data:image/png") < page.index("It.") < page.index('alt="z"')


NAMES = ["krum", "a_rule_with_a_name_of_34_letters__", "none of them"]


def swept(names):
    rows = [{"f": i, "lr": 0.1, "rule": rule, "accuracy": 0.5} for i, rule in enumerate(NAMES * 5)]
    return plot.sweep([row | {"status": "completed"} for row in rows], names, "accuracy", "a sweep")


@needs_chromium
@pytest.mark.drawn
def test_pictures_fit_a_phone_with_legible_letters(tmp_path, monkeypatch):
    """A sweep's of several parameters and of two, a comparison's and a table's: each 358 pixels wide there.

    The line that says by which command the page was written breaks anywhere, too.
    """
    monkeypatch.setattr(sys, "orig_argv", ["/" + "a_long_folder" * 6 + "/python", "table.py"])
    cells = [plot.Compared(row, column, 50.0, 1.0, [49.0, 52.0], False) for row in NAMES for column in "abcdefg"]
    mean = {("p", row, str(column)): (50.0, "50.0 \u00b1 1.0") for row in NAMES for column in range(4)}
    curve = {("a", row, ""): [({1: 50.0, 2: 60.0}, False)] for row in NAMES}
    figures = {
        "several": swept(["f", "lr", "rule"]),
        "two": swept(["lr", "f"]),
        "maps": plot.grouped(mean, [*map(str, range(4))], "a row", "a column", "accuracy (%)"),
        "curves": plot.grouped_curves(curve, "a row", "accuracy (%)", lambda _: 2.0),
        "table": [plot.against_paper(cells, "accuracy, %", "Table 1 of a paper, with a long title")],
    }
    assert [len(of) for of in figures.values()] == [3, 1, 2, 1, 1]
    Report("Mine", figures=figures).write(tmp_path, "all")
    assert beyond(tmp_path, tmp_path / "all.html") == [0, 0]
    for figure in (one for of in figures.values() for one in of):
        points = min(text.get_fontsize() for text in figure.findobj(Text) if text.get_visible() and text.get_text())
        assert points / 72 * 358 / figure.get_figwidth() >= 11


def test_a_title_of_many_settings_leaves_the_axes_their_height():
    few, many = (
        plot.grouped_curves({(title, "krum", ""): [({0: 1.0, 1: 2.0}, False)]}, "a row", "accuracy (%)", lambda _: 2.0)
        for title in ("iid", ", ".join(["federation.n_clients=100"] * 15))
    )
    for figure in (*few, *many):
        figure.draw_without_rendering()
    heights = [figure.axes[0].get_window_extent().height for figure in (*few, *many)]
    assert heights[1] > 0.7 * heights[0]


def test_a_rule_inside_a_rule_has_a_line_of_its_own_in_a_map():
    shown = {("", "a", "b"): (0.5, "43.3 (nnm(trimmed_mean))")}
    [figure] = plot.grouped(shown, ["b"], "a row", "a column", "accuracy (%)")
    assert "43.3\n(nnm\n(trimmed_mean))" in [text.get_text() for text in figure.findobj(Text)]
