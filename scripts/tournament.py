"""Let rules compete under every attack and degree of label skew.  The same as ``lightning-fl tournament``."""

from lightning_fl.commands.tournament import main

if __name__ == "__main__":
    main()
