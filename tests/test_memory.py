"""Huge pages: asked for by the package, and refused by whoever says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_fl._memory import take_huge_pages

# Whether the pages of a large tensor are marked for huge ones ("hg"), by the system's own list.
CODE = """
import re
from pathlib import Path
import lightning_fl
import torch
rows = torch.ones(2**24)
where = rows.data_ptr() + 2**25
for region in re.split(r"(?m)^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
    first, last = (int(x, 16) for x in re.match(r"([0-9a-f]+)-([0-9a-f]+)|$", region).groups(default="0"))
    if first <= where < last:
        print("hg" in re.search(r"VmFlags:(.*)", region).group(1).split())
"""


def asked(**more):
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | more
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


def test_the_environment_has_the_last_word():
    for given, says in [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")]:
        environment = dict(given)
        take_huge_pages(environment)
        assert environment["THP_MEM_ALLOC_ENABLE"] == says


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no huge pages")
def test_large_tensors_ask_for_them():
    assert (asked(), asked(THP_MEM_ALLOC_ENABLE="0")) == ("True", "False")
