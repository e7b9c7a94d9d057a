"""The generated page of everything in conf/."""

import catalogue
import pytest

from lightning_fl.contract import conf
from lightning_fl.run.config import CONF

FILES = [path for group in sorted(CONF.iterdir()) if group.is_dir() for path in sorted(group.glob("*.yaml"))]


def test_the_page_is_up_to_date():
    assert catalogue.PAGE.read_text() == catalogue.catalogue(), "python scripts/catalogue.py"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_file_says_what_it_is(path):
    sentence = catalogue.sentence(path)
    assert len(sentence) > 8
    assert sentence.endswith(".")


def test_everything_is_in_the_catalogue_once():
    text = catalogue.catalogue()
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len(FILES)
    assert all(line.count(" | ") == 1 + ("(conf/adversary/" in line) for line in rows)
    assert all(f"(conf/{path.parent.name}/{path.name})" in text for path in FILES)
    assert {path.parent.name for path in FILES} == set(catalogue.GROUPS)
    assert f"{len(conf.names('aggregator'))} rules, {len(conf.names('adversary'))} attacks" in text


def test_what_attacks_know():
    known = {name: catalogue.knowledge(CONF / "adversary" / f"{name}.yaml") for name in conf.names("adversary")}
    assert {known[name] for name in ("adaptive", "opt_ipm", "opt_alie", "one_coordinate")} == {"rule"}
    assert (known["none"], known["edge_case"], known["gaussian"], known["gaussian_models"]) == (
        None,
        "data",
        "nothing",
        "models",
    )


def test_the_first_sentence_of_the_first_comment(tmp_path):
    path = tmp_path / "x.yaml"
    long = "# @package _global_\n# A rule (arXiv:1.2, 0.5\n# of it) w.o. c.\n# More.\na: 1\n# No.\n"
    for text, sentence in [
        (long, "A rule (arXiv:1.2, 0.5 of it) w.o. c."),
        ("# One.  Two.\n", "One."),
        ("a: 1  # No.\n", ""),
        ("# No end\n", ""),
    ]:
        path.write_text(text)
        assert catalogue.sentence(path) == sentence
