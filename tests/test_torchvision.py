"""What stands in for torchvision here fails as it does beside a torch without CUDA, or carries its operators."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FAKE = """
import torch
from torchvision import part

for name in ("nms", "qnms"):
    torch.library.register_fake(f"torchvision::{name}", lambda dets, scores, iou: dets)
"""
OPERATORS = """
import torch

library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
FIRST = """
try:
    import torchvision
except RuntimeError as error:
    print(error)
"""
THEN = """
import lightning_fl
import torchvision
print("imported", lightning_fl._torchvision.Loader.library is not None)
"""


@pytest.mark.parametrize(
    ("operators", "code", "printed"),
    [
        ("", THEN, "imported True"),
        ("", FIRST + THEN, "operator torchvision::nms does not exist\nimported True"),
        (OPERATORS, THEN, "imported False"),
    ],
    ids=["without operators", "tried before", "with operators"],
)
def test_torchvision_is_imported(operators, code, printed, tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(FAKE)
    (tmp_path / "torchvision" / "part.py").write_text(operators)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == printed
