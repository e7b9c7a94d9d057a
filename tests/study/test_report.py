"""One report in every form."""

from dataclasses import replace

from matplotlib.figure import Figure

from lightning_fl.study.report import Report, Section

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
    html = WHOLE.html()
    assert "<td><b>9</b><br>8</td>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert "<p><code>a</code> wins</p>" in html
    assert WHOLE.csv() == "rule,n\n'=1+1,0.333333\n"


def test_in_files(tmp_path):
    figures = {"p": Figure((1, 1)), "z": Figure((1, 1))}
    whole = replace(WHOLE, figures=figures)
    paths = whole.write(tmp_path / "out", "all", brief=Report("B"))
    names = ["all.md", "all.csv", "all.tex", "all.html", "p.png", "p.pdf", "z.png", "z.pdf"]
    assert [path.name for path in paths if path.exists()] == names
    assert paths[0].read_text().count("![](") == 2
    assert paths[2].read_text() == "% B\n"
    page = paths[3].read_text()
    assert page.index("Of | two") < page.index("data:image/png") < page.index("It.") < page.index('alt="z"')
