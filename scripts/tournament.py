"""Let rules compete under every attack and degree of label skew.  The same as ``lightning-fl tournament``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("tournament")
