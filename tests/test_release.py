"""What a release shows and says of itself."""

import configparser
import re
import runpy
from pathlib import Path

import yaml

import lightning_fl

ROOT = Path(__file__).resolve().parents[1]
ADDRESSES = runpy.run_path(str(ROOT / ".github" / "addresses.py"))
AT = ("https://example.org/us/lightning-fl", "v1.0.0")


def test_links_of_the_readme_lead_to_the_repository():
    text = ADDRESSES["readme_at"]((ROOT / "README.md").read_text(), *AT)
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert "https://example.org/us/lightning-fl/raw/v1.0.0/README.png" in links
    assert all(link.startswith("https://") for link in links)
    for link in links:
        path = re.sub(r"^https://example.org/us/lightning-fl/(blob|raw)/v1.0.0/", "", link)
        assert path.startswith("https://flower.ai") or (ROOT / path).exists()


def test_the_metadata_has_the_projects_links():
    metadata = configparser.ConfigParser()
    metadata.read_string(ADDRESSES["metadata_at"]((ROOT / "setup.cfg").read_text(), *AT))
    assert f"Source = {AT[0]}" in metadata["metadata"]["project_urls"]


def test_versions_agree():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == lightning_fl.__version__


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_workflows_and_forms_are_yaml():
    for path in (ROOT / ".github").rglob("*.yml"):
        assert yaml.safe_load(path.read_text()), path
