"""What a process frees and takes again: no fresh pages."""

import platform
import subprocess
import sys

import pytest

from lightning_fl.network.malloc import _CHOICES, keep_freed

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

# Fresh pages, 4 KB each, that ten passes through a small convolution touch.
PAGES = """
import resource, torch
from lightning_fl.network.malloc import keep_freed
assert keep_freed({})
torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(1152, 10)
)
images = torch.randn(256, 1, 28, 28)
for k in range(40):
    if k == 30:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model(images).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@glibc
def test_freed_memory_is_used_again():
    """By default it is 23,000."""
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5000


@pytest.mark.parametrize("name", sorted(_CHOICES))
def test_the_environment_has_the_last_word(name):
    assert not keep_freed({name: "1"})


def test_another_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert not keep_freed({})
