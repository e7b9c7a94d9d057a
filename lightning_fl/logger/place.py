"""Say where a logger records."""

from pytorch_lightning.loggers import Logger

from lightning_fl.text import shown


def place(logger: Logger) -> str:
    """Say where a logger records: its own ``place`` if it has one, else its kind and its folder or address.

    Args:
        logger: The logger; it is started if it was not yet.
    """
    own = getattr(logger, "place", None)
    if isinstance(own, str):
        return own
    kind = type(logger).__name__.removesuffix("Logger")
    folder = logger.log_dir or logger.save_dir
    where = shown(folder) if folder else getattr(getattr(logger, "experiment", None), "tracking_uri", None)
    return f"{kind}, {where}" if where else kind
