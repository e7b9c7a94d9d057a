"""Makes ``import torchvision`` work beside a CPU-only torch.

The ordinary torchvision wheel carries operators compiled against CUDA.  Beside a CPU-only torch that file does not
load, and torchvision (then torchmetrics and pytorch_lightning, which look at it) fails on import with ``operator
torchvision::nms does not exist``.  Declaring the two schemas that torchvision registers fake kernels for is enough:
data sets, transforms and models work.  Where torchvision loads, this module does nothing.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    # The schemas live as long as this object.
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
