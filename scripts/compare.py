"""Compare any number of runs: a table over seeds, with pictures.  The same as ``lightning-fl compare``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("compare")
