"""Start from weights that another run, or any program, has left."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from lightning_fl import files
from lightning_fl.errors import DataError, MissingError, SettingError
from lightning_fl.run.saved import last_checkpoint

_NEED = "model.start needs a run's folder with a checkpoint, or a file of torch.save(model.state_dict(), FILE)"


def take_over(model: nn.Module, start: str) -> None:
    """Give a model the weights, and buffers if it has any, of a file.

    Args:
        model: The model; what its parameters were is lost.
        start: A run's folder, its checkpoint, or a file that ``torch.save(model.state_dict(), ...)`` has written.

    Raises:
        SettingError: If there is no such file, or it is of another model.
        DataError: If the file is damaged, or holds more than tensors and plain Python values.
    """
    folder, path = Path(start), last_checkpoint(Path(start))
    path = path if folder.is_dir() else folder
    if not path.is_file():
        raise MissingError(f"{_NEED}, got {start}, which is neither.")
    found: Any = files.load(path, advice=f"{_NEED}; give another file")
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):  # Lightning's
        named = found["state_dict"].items()
        found = {name.removeprefix("model."): value for name, value in named if name.startswith("model.")}
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(f"{_NEED}, got something else in {path}; give another file.")
    ours, theirs = model.state_dict(), found
    unlike = [
        name
        for name in ours.keys() | theirs.keys()
        if _shape(ours.get(name)) != _shape(theirs.get(name))
        # A run with model.buffers leaves some of batch normalisation's own out.
        and not (name.rpartition(".")[2] in _STATISTICS and (name not in ours or name not in theirs))
    ]
    if unlike:
        name = min(unlike)
        raise SettingError(
            f"model.start needs weights of this model, got others in {path}: {name} has shape "
            f"{_shape(theirs.get(name))} there and {_shape(ours.get(name))} here; choose the model that it was saved "
            f"from."
        )
    model.load_state_dict(theirs, strict=False)


_STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}


def _shape(value: Tensor | None) -> tuple[int, ...] | str:
    return "none" if value is None else tuple(value.shape)
