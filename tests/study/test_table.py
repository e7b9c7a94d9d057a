"""The published tables: as printed, read, judged."""

from functools import cache
from math import inf, isnan

import pytest

from lightning_fl import SettingError
from lightning_fl.commands.reproduce import picked
from lightning_fl.run.check import checked
from lightning_fl.study.options import seeds_of
from lightning_fl.study.table import TABLES, Printed, Table, judge, names
from tests.study.small import OWN, SMALL

NAMES = names()


@cache
def load(name: str) -> Table:
    return Table.load(name)


def printed(table: Table):
    """The paper's own numbers, as judge asks for them."""
    return lambda row, column: table.published[row, column].mean if (row, column) in table.published else None


@pytest.mark.parametrize(
    ("table", "row", "column", "text"),
    [
        ("boba_1_mnist", "BOBA", "Acc", "92.5 (0.1)"),
        ("boba_1_mnist", "CooMed", "MRD", "62.9 (24.3)"),
        ("boba_1_cifar10", "RAGE", "MRD", "56.4 (10.0)"),
        ("boba_1_ag_news", "ByGARS", "Acc", "44.9 (6.5)"),
        ("boba_2_mnist", "BOBA", "IPM", "91.6 (0.2)"),
        ("boba_2_mnist", "RAGE", "LIE", "80.6 (14.0)"),
        ("boba_2_cifar10", "MKrum", "IPM", "50.9 (11.2)"),
        ("boba_2_ag_news", "B-MKrum", "MinSum", "60.4 (28.3)"),
        ("boba_2_ag_news", "FLTrust", "Wst", "85.7"),
        ("boba_3_cifar10", "BOBA", "Wst", "62.8"),
        ("boba_4_ablation", "BOBA w.o. stage 2", "Gauss", "24.8 (0.4)"),
        ("boba_7_mnist", "BOBA", "IPM", "92.6 (1.1)"),
        ("boba_8_participation", "0.75 MKrum", "IPM", "48.8 (32.6)"),
        ("boba_9_cifar10", "AvgRej", "MRD", "25.2 (20.3)"),
        ("fed_nga_3", "LeNet 0.2 0.4", "SV:GM", "19.34"),
        ("fed_nga_3", "MLP 0.6 0.3", "GA:FedAvg", "85.87"),
        ("raga_2", "RAGA 0.6", "SF 0.2", "97.76"),
        ("raga_3", "MCA 0.2", "SF 0.3", "94.81"),
        ("raga_4", "LeNet FedAvg", "LIE 0.4", "15.89"),
        ("raga_5", "FedAvg", "SF 0.4", "21.88"),
    ],
)
def test_cells_are_as_printed(table, row, column, text):
    assert load(table).published[row, column].text == text


@pytest.mark.parametrize("name", NAMES)
def test_worst_cells_are_the_least_of_their_rows_but_for_the_doubtful(name):
    table = load(name)
    value = printed(table)
    for (row, label), cell in table.published.items():
        worst = table.columns[label].worst
        if worst and (row, label) not in table.doubtful:
            assert cell.mean == min(value(row, column) for column in worst)


def test_the_papers_inconsistencies_are_marked():
    papers = [name for name in NAMES if not name.endswith("_small")]  # these repeat theirs
    marked = {(name, *cell) for name in papers for cell in load(name).doubtful}
    assert {
        ("boba_2_mnist", "SelfRej", "Wst"),
        ("boba_2_cifar10", "TrMean", "Wst"),
        ("boba_7_cifar10", "Average", "Wst"),
        ("fed_nga_3", "LeNet 0.6 0.1", "SF:FedAvg"),
        ("raga_3", "MCA 0.2", "SF 0.3"),
    } <= marked
    assert len(marked) == 11 + 2 * 2  # RAGA's tables in turn repeat theirs


def test_a_table_and_its_part_print_the_same():
    part, whole = load("boba_3_cifar10"), load("boba_9_cifar10")
    assert part.published.items() <= whole.published.items()
    assert part.rows.items() <= whole.rows.items()
    for column, text in [("Acc", "88.3 (0.1)"), ("IPM", "87.7 (0.7)")]:
        assert load("boba_8_participation").published["1.00 BOBA", column].text == text
    assert load("boba_2_ag_news").published["BOBA", "IPM"].text == "87.7 (0.7)"


@pytest.mark.parametrize("name", [name for name in NAMES if load(name).published])
def test_claims_hold_of_the_papers_own_numbers(name):
    table = load(name)
    assert table.claims
    for claim in table.claims:
        assert judge(table, claim, printed(table))[0] == "passed", claim["text"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_whole(name):
    table = load(name)
    assert (TABLES / f"{name}.yaml").read_text().startswith("# ")
    assert table.title
    assert "arXiv:" in table.source
    for label in [*table.rows, *table.columns]:
        assert not set(label) & set(",|\n"), label
    for claim in table.claims:
        assert judge(table, claim, lambda row, column: None) == (
            "not measured yet",
            f"{len(table.pairs(claim))} not measured",
        )
        assert judge(table, claim, lambda row, column: 1.0)[0] in {"passed", "failed"}


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("raga_2", {"FedAvg 0.6", "RFA 0.6", "MCA 0.6", "FedAvg 0.2", "RFA 0.2", "MCA 0.2"}),
        ("raga_3", {"FedAvg 0.6", "RFA 0.6", "MCA 0.6", "FedAvg 0.2", "RFA 0.2", "MCA 0.2"}),
        ("raga_4", {"LeNet FedAvg", "LeNet RFA", "LeNet MCA", "MLP FedAvg", "MLP RFA", "MLP MCA"}),
        ("raga_5", set()),
    ],
)
def test_gaussian_attackers_replace_what_ragas_peers_upload(name, models):
    """N(0, 90) instead of a model where models are uploaded; variance 90 everywhere."""
    given = {row: parts for (row, column), parts in load(name).runs() if column == "GA 0.4"}
    adversaries = {row: checked(parts).adversary for row, parts in given.items()}
    assert {row for row, adversary in adversaries.items() if adversary.space == "models"} == models
    assert {row for row, adversary in adversaries.items() if adversary.space == "updates"} == set(given) - models
    assert {round(adversary.std**2, 3) for adversary in adversaries.values()} == {90.0}


def test_fed_ngas_median_is_the_lower_gradient():
    """As torch.median; M = 100 gradients have two middle values."""
    cells = {cell: given for cell, given in load("fed_nga_3").runs() if cell[0] == "MLP 0.6 0.2"}
    cells |= dict(load("fed_nga_fig_2").runs())
    rules = [checked(given).aggregator for given in cells.values()]
    assert [rule.middle for rule in rules if "middle" in rule] == ["lower"] * 4


def test_some_cells_have_overrides_of_their_own():
    more = [{"rows": ["BOBA"], "columns": ["IPM", "LIE"], "overrides": "adversary.factor=3"}]
    given = dict(Table("small", SMALL | {"cells": more}).runs())
    assert given["BOBA", "LIE"][-3:] == ["adversary=lie", "aggregator=boba", "adversary.factor=3"]
    assert given["BOBA", "Acc"][-2:] == ["adversary=none", "aggregator=boba"]
    assert given["Average", "IPM"][-2:] == ["adversary=ipm", "aggregator=average"]
    with pytest.raises(SettingError, match="there is no column Mimic"):
        Table("small", SMALL | {"cells": [more[0] | {"columns": ["Mimic"]}]})


def test_printed_numbers():
    assert Printed.read("91.6 (0.2)") == Printed("91.6 (0.2)", 91.6, 0.2)
    assert Printed.read("97.76") == Printed("97.76", 97.76, None)
    assert Printed.read("-") is None
    with pytest.raises(SettingError, match="looks like"):
        Printed.read("about 90")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            lambda: Table.load("boba_2_minst"),
            "there is no table boba_2_minst; did you mean boba_2_mnist.*: boba_1_",
        ),
        (
            lambda: picked("BOBA,Krumm", ["BOBA", "Krum"], "row"),
            "no row Krumm; did you mean Krum.*: BOBA, K",
        ),
        (lambda: picked("", ["IPM"], "column"), "there is no column ; valid: IPM"),
        (lambda: seeds_of("0"), "--seeds needs how many"),
        (lambda: seeds_of("a"), "--seeds needs how many"),
        (lambda: seeds_of("-1"), "--seeds needs how many"),
    ],
)
def test_what_is_not_there_is_named(what, message):
    with pytest.raises(SettingError, match=message):
        what()


BOTH = {"rows": ["BOBA", "Average"], "columns": ["Acc"]}


def claim(relation, right, margin="0", share="1", left=None, **more):
    where = left or {"rows": ["BOBA"], "columns": ["Acc"]}
    return {"left": where, "relation": relation, "right": right, "margin": margin, "share": share, **more}


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (claim(">=", {"rows": ["Average"]}, "2"), "passed"),  # 92 >= 90 + 2
        (claim(">=", {"rows": ["Average"]}, "2.1"), "failed"),
        (claim(">=", {"rows": ["Average"]}, "-5"), "passed"),
        (claim("<=", {"rows": ["Average"]}, "-2"), "passed"),
        (claim("<=", {"rows": ["Average"]}), "failed"),
        (claim("within", "91", "1"), "passed"),
        (claim("within", "91", "0.9"), "failed"),
        (claim(">=", {"columns": ["LIE"]}), "not measured yet"),
        (claim(">=", {"rows": "others"}), "passed"),
        (claim("spread", "52", left={"rows": ["BOBA"], "columns": ["Acc", "IPM"]}), "passed"),  # 92 - 40
        (claim("spread", "51", left={"rows": ["BOBA"], "columns": ["Acc", "IPM"]}), "failed"),
        # BOBA against 50: 92, 40 and one not measured.
        (claim(">=", "50", left={"rows": ["BOBA"], "columns": ["Acc", "IPM", "LIE"]}), "failed"),
        (claim(">=", "50", share="0.5", left={"rows": ["BOBA"], "columns": ["Acc", "IPM", "LIE"]}), "partly measured"),
        (claim(">=", "50", share="0.3", left={"rows": ["BOBA"], "columns": ["Acc", "IPM", "LIE"]}), "passed"),
        # In pairs: BOBA with Average and Average with BOBA, not each with itself.
        (claim("within", {"rows": ["Average", "BOBA"]}, "2", pair="true", left=BOTH), "passed"),
        (claim("within", {"rows": ["Average", "BOBA"]}, "1", pair="true", left=BOTH), "failed"),
        # BOBA's 92 without attack against Average's 85 under IPM, not against its own column's.
        (claim(">=", {"rows": ["Average"], "columns": ["IPM"]}, "7", pair="yes"), "passed"),
        (claim(">=", {"rows": ["Average"], "columns": ["IPM"]}, "7.1", pair="yes"), "failed"),
        (claim(">=", {"rows": ["Average"]}, "2", pair="no"), "passed"),
    ],
)  # fmt: skip
def test_claims(given, verdict):
    known = {("BOBA", "Acc"): 92.0, ("BOBA", "IPM"): 40.0, ("Average", "Acc"): 90.0, ("Average", "IPM"): 85.0}
    assert judge(Table("small", SMALL), given, lambda *cell: known.get(cell))[0] == verdict


def test_a_claim_about_the_others_of_a_single_row_has_nothing_to_compare():
    alone = {"rows": {"BOBA": "aggregator=boba"}, "columns": {"Acc": "adversary=none"}, "reference": []}
    alone |= {"published": {}, "doubtful": [], "claims": []}
    given = claim(">=", {"rows": "others"}, left={"rows": ["BOBA"], "columns": ["Acc"]})
    assert judge(Table("small", SMALL | alone), given, lambda *_: 90.0) == ("nothing to compare", "")


@pytest.mark.parametrize(
    ("known", "verdict"),
    [
        ({"BOBA": inf, "Average": inf}, ("not reached", "by either side")),
        ({"BOBA": inf, "Average": 90.0}, ("failed", "0 of 1 hold")),
        ({"BOBA": 90.0, "Average": inf}, ("passed", "1 of 1 hold")),
        ({"BOBA": inf}, ("not measured yet", "1 not measured")),
    ],
)
def test_a_target_that_neither_reached_decides_nothing(known, verdict):
    given = claim("<=", {"rows": ["Average"]})
    assert judge(Table("small", SMALL), given, lambda row, column: known.get(row)) == verdict


def test_a_table_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN)
    table = Table.load(str(path))
    assert (table.name, table.spelled, table.seeds, table.interval) == ("mine", str(path), 3, True)
    assert dict(table.runs()) == {
        ("aggregator=krum", "IPM"): ["adversary=ipm", "aggregator=krum"],
        ("aggregator=krum", "LIE"): ["adversary=lie", "aggregator=krum"],
        ("aggregator=boba aggregator.f=3", "IPM"): ["adversary=ipm", "aggregator=boba", "aggregator.f=3"],
        ("aggregator=boba aggregator.f=3", "LIE"): ["adversary=lie", "aggregator=boba", "aggregator.f=3"],
    }
    assert table.columns["worst"].worst == ("IPM", "LIE")
    for word, interval in [("True", True), ("yes", True), ("off", False)]:
        path.write_text(OWN.replace("interval: true", f"interval: {word}"))
        assert Table.load(str(path)).interval == interval
    path.write_text(OWN.replace("{worst: all}", "{worst: IPM}"))
    assert Table.load(str(path)).columns["worst"].worst == ("IPM",)


def test_a_table_of_ones_own_is_not_ours_by_its_name(tmp_path):
    path = tmp_path / "frpg_fig_5.yaml"
    path.write_text((TABLES / path.name).read_text())
    assert Table.load(str(path)).name == "own_frpg_fig_5"
    assert Table.load(str(TABLES / path.name)).name == "frpg_fig_5"


def test_a_table_like_one_of_ours_has_its_rows_and_what_the_paper_prints(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "like: boba_1_mnist\ntitle: Mine\nrows: {Mine: aggregator=norm_bounding}\ncolumns: {IPM: adversary=ipm}\n"
    )
    mine, paper = Table.load(str(path)), load("boba_1_mnist")
    assert (mine.name, mine.title, mine.base, mine.own) == ("mine", "Mine", paper.base, True)
    assert mine.rows == paper.rows | {"Mine": "aggregator=norm_bounding"}
    assert list(mine.columns) == ["Acc", "MRD", "IPM"]
    assert mine.published == paper.published  # no number is printed for the new row and column
    assert mine.claims == paper.claims
    path.write_text("like: boba_1_mnist\nrows: {BOBA: aggregator=boba f=9}\ncolumns: {Acc: adversary=lie}\n")
    changed = Table.load(str(path)).published  # what the paper prints is of its own settings
    assert {cell for cell in paper.published if cell not in changed} == {
        cell for cell in paper.published if cell[0] == "BOBA" or cell[1] == "Acc"
    }
    assert changed.items() <= paper.published.items()
    assert dict(mine.runs())["Mine", "IPM"] == ["experiment=boba_mnist", "adversary=ipm", "aggregator=norm_bounding"]


def test_a_table_like_a_file_beside_it_takes_over_what_it_leaves_out_and_nothing_that_it_empties(tmp_path):
    (tmp_path / "first.yaml").write_text(OWN + "note: Something\npublished: {aggregator=krum: [1, 2, 3]}\nchance: 10\n")
    (tmp_path / "second.yaml").write_text("like: first.yaml\nnote:\nseeds: 2\ncolumns: [adversary=mimic]\n")
    (tmp_path / "third.yaml").write_text("like: second.yaml\nchance:\npublished:\nrows: {aggregator=krum: f=1}\n")
    first, second, third = (Table.load(str(tmp_path / f"{name}.yaml")) for name in ("first", "second", "third"))
    assert (first.note, second.note, third.note) == ("Something", "", "")
    assert (first.seeds, second.seeds, third.seeds) == (3, 2, 2)
    assert (second.chance, isnan(third.chance)) == (10, True)
    assert list(third.columns) == ["IPM", "LIE", "worst", "adversary=mimic"]
    assert (second.published, third.published) == (first.published, {})
    assert list(third.rows) == list(first.rows)
    assert third.rows["aggregator=krum"] == "f=1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like: boba_2_minst", "there is no table boba_2_minst; did you mean boba_2_mnist"),
        ("like: nowhere.yaml", r"nowhere\.yaml cannot be read as a table: .*No such file"),
        ("like: [boba_2_mnist]", "like of a table needs text, got"),
        ("like: mine.yaml", "a table cannot be like itself, got mine like mine"),
        ("like: again.yaml", "a table cannot be like itself, got mine like again like mine"),
        ("like: broken.yaml", "a table needs title, rows, columns, broken.yaml has no title"),
        ("like: boba_2_mnist\nrows: {Mine: [f=1]}", "rows of a table needs overrides"),
        ("like: boba_2_mnist\nrow: {Mine: f=1}", "there is no entry of a table called row; did you mean rows"),
        ("like: boba_2_mnist\npublished: {Mine: [1]}", "there is no row Mine"),
        ("like: boba_2_mnist\nrows:\n", "a table needs title, rows, columns, .*mine.yaml has no rows"),
        ("like:\n", "a table needs title, rows, columns, .*mine.yaml has no title"),
    ],
)
def test_a_table_is_like_another_that_is_whole(tmp_path, text, message):
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "again.yaml").write_text("like: mine.yaml")
    (tmp_path / "broken.yaml").write_text("rows: [f=1]")
    with pytest.raises(SettingError, match=message):
        Table.load(str(tmp_path / "mine.yaml"))


def test_quotes_that_do_not_end_are_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN + 'base: "data=\'x"\n')
    with pytest.raises(SettingError, match=r"overrides are separated by blanks, got .*No closing quotation"):
        dict(Table.load(str(path)).runs())


def test_a_table_of_ours_by_its_path_is_ours():
    table = Table.load(str(TABLES / "frpg_fig_5.yaml"))
    assert not table.own
    assert table.spelled == "frpg_fig_5"


def test_a_file_that_is_not_there():
    with pytest.raises(SettingError, match=r"nowhere\.yaml cannot be read as a table: .*No such file"):
        Table.load("nowhere.yaml")


def test_a_share_of_the_comparisons_is_counted_exactly():
    """0.56 * 25 is 14.000000000000002 in floating point."""
    rows = {str(k): f"f={k}" for k in range(25)}
    table = Table("many", {"title": "Many", "rows": rows, "columns": {"Acc": ""}})
    given = claim(">=", "13", share="0.56", left={"columns": ["Acc"]})
    assert judge(table, given, lambda row, column: 24.0 - int(row))[0] == "failed"  # 12 of 25
    assert judge(table, given, lambda row, column: 26.0 - int(row))[0] == "passed"  # 14 of 25


def test_rows_above_the_first_reference_compare_with_it():
    rows = dict.fromkeys(("Krum", "BOBA", "Average", "Zeno", "Late", "RAGE"), "f=1")
    table = Table(
        "small", SMALL | {"rows": rows, "reference": ["Average", "Late"], "published": {}, "doubtful": [], "claims": []}
    )
    assert [table.reference[row] for row in rows] == ["Average"] * 4 + ["Late"] * 2


def test_what_mrd_compares_with_is_trained_too(tmp_path):
    table = Table("small", SMALL)
    assert table.trained(["BOBA"], ["MRD"]) == [("BOBA", "MRD"), ("Average", "MRD")]
    assert table.trained(["BOBA"], ["Acc"]) == [("BOBA", "Acc")]


def test_overrides_of_one_cell_add_up():
    entry = {"rows": ["BOBA"], "columns": ["IPM"]}
    table = Table(
        "small", SMALL | {"cells": [{**entry, "overrides": "f=3"}, {**entry, "overrides": "adversary.factor=2"}]}
    )
    assert dict(table.runs())["BOBA", "IPM"][-2:] == ["f=3", "adversary.factor=2"]
