"""Models of the papers."""

from lightning_fl import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__, group_norm=["with_group_norm"])
