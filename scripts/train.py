"""Train one federation and measure what survives.  The same as ``lightning-fl train``."""

from lightning_fl.commands.train import main

if __name__ == "__main__":
    main()
