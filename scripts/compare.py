"""Compare any number of runs: a table over seeds, with pictures.  The same as ``lightning-fl compare``."""

from lightning_fl.commands.compare import main

if __name__ == "__main__":
    main()
