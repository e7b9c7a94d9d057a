"""Draw runs that train.py has left, and how a partition spreads the classes.  The same as ``lightning-fl plot``."""

from lightning_fl.commands.plot import main

if __name__ == "__main__":
    main()
