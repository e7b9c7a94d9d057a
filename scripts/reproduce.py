"""Measure a table or figure of a paper: missing cells are trained.  The same as ``lightning-fl reproduce``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("reproduce")
