"""Run a sweep file of Weights & Biases on this machine, without an account.  The same as ``lightning-fl sweep``."""

from lightning_fl.commands.sweep import main

if __name__ == "__main__":
    main()
