"""How Lightning runs a round over several processes."""

from lightning_fl import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
