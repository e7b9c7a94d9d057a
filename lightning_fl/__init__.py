"""Byzantine-robust federated learning under label skew, on PyTorch Lightning.

Names are imported from their modules when they are first used (``__init__.pyi`` says which): asking only for the name
of a configuration does not wait for torch.
"""

import lazy_loader

import lightning_fl._torchvision  # noqa: F401  (before anything imports torchvision)
from lightning_fl.network.threads import spin_briefly

spin_briefly()  # before anything imports torch

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
