"""What a table's file may hold."""

import pytest

from lightning_fl import SettingError
from lightning_fl.study.table import Table
from tests.study.small import OWN


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("title: My comparison", ""), "a table needs title, rows, columns, .*mine.yaml has no title"),
        (("rows:", "row:"), "there is no entry of a table called row; did you mean rows"),
        (
            ("[aggregator=krum, aggregator=boba aggregator.f=3]", "aggregator=krum"),
            "rows of a table needs overrides, with labels .* or as a list, got 'aggregator=krum'",
        ),
        (("{IPM", "[IPM"), "mine.yaml cannot be read as a table: .*expected"),
        ((OWN, "just words"), "a table needs some of title, .*, got 'just words'"),
        (("interval: true", "values: best"), "there is no entry of a table called values; did you mean value"),
        (("{worst: all}", "{worst: [IMP]}"), "there is no column IMP; did you mean IPM"),
        (("interval: true", "value: best accuracy"), "there is no value best accuracy"),
        (("interval: true", "interval: perhaps"), "interval of a table needs true or false, got 'perhaps'"),
        (("{worst: all}", "{worts: all}"), "no entry of column worst called worts; did you mean worst"),
        (("{worst: all}", "{worst: [worst]}"), "column worst can be the worst of measured ones before it, got worst"),
        (("LIE: adversary=lie", "LIE: {overrides: adversary=lie, value: mrd}"), "needs columns of one value"),
        (("seeds: 3", "seeds: three"), "seeds of a table needs a whole number above 0, got 'three'"),
        (("seeds: 3", "seeds: 2.5"), "seeds of a table needs a whole number above 0, got '2.5'"),
        (("interval: true", "interval: [true]"), r"interval of a table needs true or false, got \['true'\]"),
        (("interval: true", "base: [a, b]"), "base of a table needs text"),
        (("[aggregator=krum, aggregator=boba aggregator.f=3]", "{K: {overrides: f=1}}"), "rows of a table needs over"),
        (("{IPM: adversary=ipm,", "{IPM: [adversary=ipm],"), "columns of a table needs overrides"),
        (("LIE: adversary=lie", "LIE: {overrides: [a]}"), r"overrides of column LIE needs text, got \['a'\]"),
        (("{worst: all}", "{worst: []}"), r"worst of column worst needs columns, got \[\]"),
        (("{IPM: adversary=ipm,", "{first: {worst: all}, IPM: adversary=ipm,"), "ones before it, got none"),
        (("interval: true", "reference: krum"), "there is no row krum"),
        (("interval: true", "published: [1]"), "published of a table needs a list of numbers for each row"),
        (("interval: true", "published: {aggregator=krum: '123'}"), "published of a table needs a list of numbers"),
        (("interval: true", "claims: [{text: a, left: {}, right: 1}]"), "each entry of claims needs relation, got"),
        (("interval: true", "claims: [{left: {}, relation: '>=', right: 1}]"), "each entry of claims needs text, got"),
        (("{worst: all}", "{worst: all, value: best}"), "column worst is the worst of others and has no more than"),
        (("interval: true", "claims: [{text: a, left: {}, relation: '>', right: 1}]"), "there is no relation >"),
        (
            ("interval: true", "claims: [{text: a, left: {}, relation: '>=', right: LIE}]"),
            "needs cells or a number, got 'LIE'",
        ),
        (
            ("interval: true", "claims: [{text: a, left: {rows: others}, relation: '>=', right: 1}]"),
            "rows of left of claims",
        ),
        (("interval: true", "claims: [{text: a, left: {rows: [a]}, relation: '>=', right: 1}]"), "there is no row a"),
        (
            ("interval: true", "claims: [{text: a, left: {}, relation: '>=', right: {rows: others}, pair: yes}]"),
            "claims with pair need as many rows on the left as on the right",
        ),
        (("interval: true", "chance: low"), "chance of a table needs a number, got 'low'"),
        (("interval: true", "interval: true\nseeds: 2"), "seeds occurs twice"),
        (("{IPM: adversary=ipm,", "{IPM: adversary=ipm, IPM: adversary=lie,"), "IPM occurs twice"),
        (
            (
                "LIE: adversary=lie, worst: {worst: all}}",
                "LIE: {overrides: adversary=lie, value: mrd}}\nreference: aggregator=krum",
            ),
            "column LIE would compare recalls under attack, got adversary=lie",
        ),
        (("interval: true", "value: mrd"), "column LIE needs a row to compare with, got none; give reference: ROW"),
        (("interval: true", "value: rounds_to"), "column LIE needs an accuracy to reach, got none; give target: PERC"),
        (
            ("interval: true", "cells: [{columns: [worst], overrides: f=1}]"),
            "cells change runs, which column worst has none of",
        ),
        (
            ("interval: true", "claims: [{text: a, left: {rows: []}, relation: spread, right: 1}]"),
            r"rows of left of claims needs a list of names, got \[\]",
        ),
        (
            ("interval: true", "claims: [{text: a, left: {}, relation: '>=', right: 1, share: 80}]"),
            "share of claims needs a share from 0 to 1, got '80'",
        ),
        (
            ("interval: true", "claims: [{text: a, left: {}, relation: '>=', right: 1, pair: perhaps}]"),
            "pair of claims needs true or false, got 'perhaps'",
        ),
        (
            (
                "interval: true",
                "claims: [{text: a, left: {rows: [aggregator=krum]}, relation: '>=', right: {rows: [b]}, pair: yes}]",
            ),
            "there is no row b; valid: aggregator=krum",
        ),
        (("interval: true", "cells: [{rows: [aggregator=krum]}]"), "each entry of cells needs overrides, got"),
        (("interval: true", "cells: [{row: [aggregator=krum], overrides: f=1}]"), "no entry of cells called row"),
        (("interval: true", "published: {krum: [1, 2, 3]}"), "there is no row krum; valid: aggregator=krum"),
        (("interval: true", "published: {aggregator=krum: [1]}"), "published needs 3 numbers in row .*, got 1"),
        (
            ("interval: true", "claims: [{text: a, left: {row: [a]}, relation: '>=', right: 1}]"),
            "no entry of left of claims called row",
        ),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(tmp_path, changed, message):
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.replace(*changed))
    with pytest.raises(SettingError, match=message) as error:
        Table.load(str(path))
    assert "\n" not in str(error.value)
