"""What a terminal shows."""

from lightning_fl.tables import latex, markdown, table


def test_labels_are_what_latex_prints():
    *_, one, other, _, _ = latex(["", "a_b"], [["[16]", "50 % ± 1"], ["x^2~{y}", "−1"]])
    assert one == r"{}[16] & 50 \% $\pm$ 1 \\"
    assert other == r"x\textasciicircum{}2\textasciitilde{}\{y\} & $-$1 \\"


def test_a_table_is_aligned():
    assert table(["a", "long name"], [["1", "2"], ["three", "4"]]).splitlines() == [
        "      a  long name",
        "  ----------------",
        "      1          2",
        "  three          4",
    ]
    assert table(["a"], []).splitlines() == ["  a", "  -"]


def test_the_best_cells_are_bold():
    rows = [["A", "1.0 ± 0.1"], ["B_1", "2.0"]]
    assert markdown(["", "x"], rows, {(1, 1)})[2:] == ["| A | 1.0 ± 0.1 |", "| B_1 | **2.0** |"]
    first, *_, last, _, _ = latex(["", "x"], rows, {(1, 1)})
    needs = r"% needs \usepackage{booktabs} in the preamble; bold: a column's best number, whatever its spread"
    assert (first, last) == (needs, r"B\_1 & \textbf{2.0} \\")
