"""What the site is made of: its generated pages say what is kept, and links between pages lead somewhere."""

import csv
import re
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS))

import generate  # noqa: E402

from lightning_fl.aggregator.centred_clipping import CentredClipping  # noqa: E402
from lightning_fl.study.table import TABLES  # noqa: E402
from lightning_fl.study.tournament import Entries, Tournament  # noqa: E402
from lightning_fl.study.tournament_report import panels_of  # noqa: E402
from tests.browser import beyond, needs_chromium  # noqa: E402

WRITTEN = [path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in generate.FOLDERS]
MADE = {f"{folder}/{name}" for group, folder in generate.SHOWN.items() for name in generate.names(group)}
MADE |= {f"settings/{group}" for group in [*generate.GROUPS, "train"]} | {"reference/python", "reference/commands"}
BUILT = ROOT / "site"


def kept(rule, attack, skew, rate):
    with (ROOT / "scripts/tables/tournament_2025.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["rule"], row["attack"]) == (rule, attack)]
    return mean(100 * float(row["accuracy"]) for row in rows if (row["skew"], float(row["rate"])) == (skew, rate))


@pytest.fixture(scope="module", autouse=True)
def small():
    """Two rules under four attacks, in place of the whole tournament."""
    entries = Entries.choose(["krum", "median"], ["zero", "adaptive", "ipm", "mimic"], skew=["iid"], protocol="2025")
    played = Tournament(entries, TABLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "tournament", lambda protocol="2025": (played, panels_of(played)))
        yield
    generate.left.cache_clear()


def test_a_rule_has_its_class_settings_standing_and_command():
    page = generate.rule_page("krum")
    assert ".. autoclass:: lightning_fl.aggregator.krum.Krum" in page
    assert "arXiv:1703.02757" in page
    assert (ROOT / "conf/aggregator/krum.yaml").read_text().strip() in page
    assert f"| {kept('krum', 'none', 'iid', 0.1):.1f} [" in page
    (row,) = re.findall(r"^\| \[zero\]\(/attacks/zero.md\) \| ([\d.]+) ", page, re.MULTILINE)
    assert row == f"{kept('krum', 'zero', 'iid', 0.1):.1f}"
    assert re.search(r"lightning-fl train \\\n(.*\n)*.* seed=0\n```", page)
    assert "### Protocol 2026.3" in page
    assert "Nobody has played it yet" in generate.rule_page("cge")


def test_an_attack_says_what_it_sees_and_leaves():
    page = generate.attack_page("adaptive")
    assert "**Sees**: [rule](/attacks.md#rule)" in page
    assert re.search(r"^\| iid \| [\d.]+ \| \d of 2 \| \d of 2 \|$", page, re.MULTILINE)
    assert generate.knows("edge_case") == "data"


def test_every_family_is_on_its_page():
    for page, found in [
        ("rules", set(map(generate.family, ["krum", "median", "centred_clipping", "boba", "nnm_krum", "average"]))),
        ("attacks", set(map(generate.knows, ["adaptive", "ipm", "badnets", "gaussian_models", "zero", "none"]))),
    ]:
        assert len(found) == 6
        assert set(re.findall(rf"\{{include\}} {page}/(\w+)\.inc", (DOCS / f"{page}.md").read_text())) == found


def test_commands_and_classes_are_shown():
    assert "--dry-run" in generate.help_of("tournament")
    page = generate.python_page()
    assert "autofunction:: lightning_fl.run.python.train" in page
    assert "`Krum`" in page


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_links_lead_to_pages(path):
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        to = (path.parent / link).resolve()
        assert to.exists() or to.relative_to(DOCS).with_suffix("").as_posix() in MADE | {"gallery/index"}, link


def test_a_class_with_a_memory_shows_its_own_settings():
    """Sphinx would show those of `Memory.__new__`."""
    pytest.importorskip("sphinx")
    own, other = "(f: int)", "(*args: Any, **settings: Any)"
    shown = [
        generate._signature(None, "class", "", CentredClipping, None, arguments, None)[0] for arguments in (own, other)
    ]
    assert shown[0] == own
    assert shown[1].startswith("(radius: ")


def test_links_of_the_checkout_become_the_sites():
    text = (
        "[a](RESULTS.md#speed) [`b`](conf/aggregator/krum.yaml) [c](conf/model/mlp.yaml) [d](examples/flower) [e](#f)"
    )
    assert generate.on_site(text) == (
        "[a](/results.md#speed) [`b`](/rules/krum.md) [c](/settings/model.md#mlp) `d` (`examples/flower`) [e](#f)"
    )


@needs_chromium
@pytest.mark.skipif(not (BUILT / "index.html").exists(), reason="no site/")
def test_no_page_scrolls_sideways(tmp_path):
    """The five most important ones."""
    pages = ["index", "start", "rules/krum", "gallery/index", "tournament"]
    assert beyond(tmp_path, *(BUILT / f"{page}.html" for page in pages)) == [0] * 2 * len(pages)
