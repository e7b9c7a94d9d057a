"""Write a repository's address into what a package index shows: the README's links and picture, the project's links.

python .github/addresses.py https://HOST/OWNER/NAME TAG      in a checkout that is built, and not committed, afterwards
"""

import re
import sys
from pathlib import Path


def readme_at(text: str, address: str, tag: str) -> str:
    """Make the README's relative links absolute."""
    text = re.sub(r"(!\[[^]]*\])\((?!https?:)([^)]+)\)", rf"\1({address}/raw/{tag}/\2)", text)
    return re.sub(r"(?<!!)(\[[^]]*\])\((?!https?:|#)([^)]+)\)", rf"\1({address}/blob/{tag}/\2)", text)


def metadata_at(text: str, address: str, tag: str) -> str:
    """Add the project's links to setup.cfg."""
    links = {"Source": address, "Issues": f"{address}/issues", "Changes": f"{address}/blob/{tag}/CHANGELOG.md"}
    lines = "".join(f"    {name} = {link}\n" for name, link in links.items())
    return text.replace("[metadata]\n", f"[metadata]\nurl = {address}\nproject_urls =\n{lines}", 1)


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[1].startswith("https://"):
        sys.exit(__doc__)
    for name, written in [("README.md", readme_at), ("setup.cfg", metadata_at)]:
        path = Path(__file__).resolve().parents[1] / name
        path.write_text(written(path.read_text("utf-8"), *sys.argv[1:]), "utf-8")
