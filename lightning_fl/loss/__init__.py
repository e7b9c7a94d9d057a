"""What clients and server minimise: one loss per sample."""

from lightning_fl import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
