"""What happens around the rounds."""

from lightning_fl import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
