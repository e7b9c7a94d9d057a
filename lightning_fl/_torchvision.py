"""Makes ``import torchvision`` work beside a CPU-only torch.

The ordinary torchvision wheel carries operators compiled against CUDA.  Beside a CPU-only torch that file does not
load, and torchvision (then torchmetrics and pytorch_lightning, which look at it) fails on import with ``operator
torchvision::nms does not exist``.  Declaring the two schemas that torchvision registers fake kernels for is enough:
data sets, transforms and models work.  Where the compiled file loads, nothing is declared.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


class Finder:
    """Declare the schemas just before torchvision is imported, whoever imports it; find no module itself."""

    asked = False
    library: object = None  # the schemas live as long as it does

    @classmethod
    def find_spec(cls, name: str, *where: object) -> ModuleSpec | None:
        """Look at the name and leave the search to the other finders."""
        if name == "torchvision" and not cls.asked:
            cls.asked = True
            spec = PathFinder.find_spec(name)
            if spec is not None and spec.origin is not None:
                cls.library = declare(Path(spec.origin).parent)
        return None


def declare(folder: Path) -> object:
    """Declare torchvision's schemas if its compiled operators do not load; give what keeps them alive."""
    import torch

    for compiled in folder.glob("_C.*"):
        try:
            torch.ops.load_library(str(compiled))
        except OSError:
            continue
        return None
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


if "torchvision" not in sys.modules and sys.platform != "win32":  # there the wheels match each other
    sys.meta_path.insert(0, Finder)
