"""Run a sweep file of Weights & Biases on this machine, without an account.  The same as ``lightning-fl sweep``."""

from lightning_fl.__main__ import run

if __name__ == "__main__":
    run("sweep")
