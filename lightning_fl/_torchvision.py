"""Makes ``import torchvision`` work beside a CPU-only torch.

The ordinary torchvision wheel carries operators compiled against CUDA.  Beside a CPU-only torch that file does not
load, and torchvision (then torchmetrics and pytorch_lightning, which look at it) fails on import with ``operator
torchvision::nms does not exist``.  Declaring the two schemas that torchvision registers fake kernels for is enough:
data sets, transforms and models work.  Where torchvision imports as it is, nothing is declared.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


class Loader(SourceFileLoader):
    """Import torchvision; where that fails for want of its operators, declare them and import it again."""

    library: object = None  # the schemas live as long as it does

    def exec_module(self, module: ModuleType) -> None:
        """Run torchvision's own code."""
        try:
            super().exec_module(module)
        except RuntimeError as error:
            if "operator torchvision::" not in str(error):
                raise
            _forget()
            import torch

            Loader.library = library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            super().exec_module(module)


class Finder:
    """Give torchvision, whoever imports it, the loader above; leave other modules to the other finders."""

    @staticmethod
    def find_spec(name: str, *where: object) -> ModuleSpec | None:
        """Find torchvision where it would be found anyway."""
        spec = PathFinder.find_spec(name) if name == "torchvision" else None
        if spec is not None and spec.origin is not None:
            spec.loader = Loader(name, spec.origin)
        return spec


def _forget() -> None:
    """Let what has been imported of a torchvision that failed be imported anew."""
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]


if "torchvision" not in sys.modules:
    _forget()  # somebody has tried before us, and caught the error
    sys.meta_path.insert(0, Finder)
