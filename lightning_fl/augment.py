"""Random crops and flips of training images, by seed, round, step, client and sample alone."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Int64, UInt8
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.network.dropout import keys_at
from lightning_fl.samples import ClientBatch

_BORDER = 4


def augmented(batch: ClientBatch) -> ClientBatch:
    """Crop and flip the images that clients compute on, if their samples say so.

    A sample's draw does not depend on the others of its mini-batch, nor on who else takes part.

    Args:
        batch: The clients and their mini-batches.

    Returns:
        The same clients on copies of the images, or the batch itself.

    Raises:
        SettingError: If the batch does not say which round and step it is for, as those of `minibatches` do.
    """
    own = batch.samples
    if own.augment is None:
        return batch
    if batch.drawing is None:
        raise SettingError(
            f"augment={own.augment} draws by round and step, got a batch that names none; take it from minibatches."
        )
    this_round, step = batch.drawing
    numbers, sizes = torch.cat(list(batch.indices)), torch.tensor(batch.sizes)
    seeds = torch.tensor([this_round.derive_seed("augment", client, step) for client in batch.ids])
    keys = keys_at(seeds.repeat_interleave(sizes).to(numbers.device), numbers)
    inputs = crop_flip(own.inputs.index_select(0, numbers), keys)
    drawn = replace(own, inputs=inputs, targets=own.targets[numbers], augment=None)
    places = torch.arange(len(numbers), device=numbers.device).split(batch.sizes)
    return replace(batch, samples=drawn, indices=places)


def crop_flip(
    images: UInt8[Tensor, "n c height width"], keys: Int64[Tensor, " n"]
) -> UInt8[Tensor, "n c height width"]:
    """Cut each image out of itself with a black border of 4, anywhere, and mirror every second one.

    Args:
        images: Images as they are stored.
        keys: (n,) a random whole number of 64 bits for each.
    """
    height, width = images.shape[2:]
    places = 2 * _BORDER + 1
    top, left = ((keys >> shift & 0xFFFFFF) * places >> 24 for shift in (40, 16))
    rows, columns = (torch.arange(size, device=keys.device).expand(len(keys), -1) for size in (height, width))
    columns = torch.where((keys & 1).bool()[:, None], columns.flip(1), columns)
    wide = F.pad(images, [_BORDER] * 4)
    each = torch.arange(len(keys), device=keys.device)[:, None, None]
    found = wide[each, :, (rows + top[:, None])[:, :, None], (columns + left[:, None])[:, None, :]]
    return found.movedim(3, 1).contiguous()
