"""Draw runs that train.py has left, and how a partition spreads the classes.  The same as ``lightning-fl plot``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("plot")
