"""Train one federation and measure what survives.  The same as ``lightning-fl train``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("train")
