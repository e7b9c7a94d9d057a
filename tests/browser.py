"""Pages in Chromium, where there is one."""

import re
import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]  # as on a phone
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")


def browse(address, *switches):
    """Open a page and give what Chromium prints, for as long as it takes."""
    return subprocess.run(
        [str(CHROMIUM), *SWITCHES, *switches, address], capture_output=True, text=True, timeout=120
    ).stdout


def beyond(folder, *paths):
    """By how many pixels pages, or pictures in them, scroll sideways, on a desktop and on a phone, in turn."""
    frames = "".join(
        f'<iframe width="{width}" height="900" src="{path.as_uri()}"></iframe>'
        for path in paths
        for width in (1280, 390)
    )
    measured = "[...document.querySelectorAll('iframe')].map(f => beyond(f.contentDocument.documentElement))"
    parts = "[page, ...page.querySelectorAll('figure')].map(part => part.scrollWidth - part.clientWidth)"
    script = f"beyond = page => Math.max(...{parts}); onload = () => shown.append({measured})"
    page = folder / "frames.html"
    page.write_text(f"{frames}<pre id=shown></pre><script>{script}</script>")
    (found,) = re.findall(r"<pre.*?>(.*?)</pre>", browse(page.as_uri(), "--allow-file-access-from-files", "--dump-dom"))
    return [int(number) for number in found.split(",")]
