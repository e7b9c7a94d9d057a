"""Backdoors: train like the others, on samples of which some bear a trigger and the label that the attacker wants.

The model should work as usual, but give that label where it sees the trigger; `triggered` makes the test samples
that tell how often it does.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Any

import torch
from annotated_types import Gt, Le
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from typing_extensions import override

from lightning_fl import seeding
from lightning_fl.adversary.base import AttackContext, check_held
from lightning_fl.adversary.trained import Trained
from lightning_fl.data.base import FederatedDataModule
from lightning_fl.errors import SettingError
from lightning_fl.ranges import NonNegativeInt
from lightning_fl.samples import ClientBatch, Samples
from lightning_fl.updates.updates import Updates

PoisonedShare = Annotated[float, Gt(0), Le(1)]


class Backdoor(Trained):
    """Poison the Byzantine clients' own samples and let them do what honest clients do.

    Which samples of a client are poisoned is drawn once per run, from its seed and the client's number.

    Args:
        target: Class that a sample with the trigger should be taken for.  None: the one after its own, y + 1 mod c.
        source: Class whose samples get the trigger, in training and test.  None: every class.
        share: How many of each Byzantine client's samples (of the source class), in (0, 1]; at least one, if any.
        training: See `Trained`.

    Raises:
        SettingError: Before training, if there is no such class, the trigger does not fit the samples, or the
            Byzantine clients have no samples (of the source class).
    """

    varies_with = ("seed",)

    def __init__(
        self,
        target: NonNegativeInt | None = 0,
        source: NonNegativeInt | None = None,
        share: PoisonedShare = 0.32,
        **training: Any,
    ):
        super().__init__(**training)
        if target is not None and target == source:
            raise SettingError(f"{self.spelled()} needs another target than its source, got {target}; change one.")
        self.target = target
        self.source = source
        self.share = share

    white: float | Tensor = 1.0
    """What white is in images of floats: each channel's largest value in training, (channels, 1, 1), once known."""

    @abstractmethod
    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        """Put the trigger on some inputs, or others in their place.

        Args:
            inputs: (k, ...) as they are stored; left unchanged.
            client: Whose they are.  None: test samples.
            generator: Draws random triggers.

        Returns:
            (k, ...) inputs with the trigger.

        Raises:
            SettingError: If it does not fit them.
        """

    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        """Change what the poisoned training gave, by default nothing.

        Args:
            updates: The b updates, which may be written to.
            n: How many updates the round brings.
            context: What else the attacker knows.
        """
        return updates

    @override
    def check_data(self, data: FederatedDataModule) -> None:
        for name, value in [("target", self.target), ("source", self.source)]:
            if value is not None and value >= data.n_classes:
                raise SettingError(
                    f"{self.spelled()} needs a class below {data.n_classes} as {name}, got {value}; change it."
                )
        federation = data.federation
        if federation.n_byzantine and federation.byzantine == "supplement" and federation.byzantine_data is None:
            raise SettingError(
                "a backdoor needs Byzantine clients with data, got supplementary ones, who hold none; set "
                "federation.byzantine=replacement, or federation.byzantine_data to iid or copies."
            )
        check_held(data, self.source)
        images = data.train.inputs
        if images.is_floating_point() and images.ndim == 4:
            self.white = images.amax((0, 2, 3))[:, None, None]
        self.triggered(data.test)

    @override
    def triggered(self, test: Samples) -> Samples:
        goals = self._goals(test)
        counted = (self._attacked(test) & (test.targets != goals)).nonzero().flatten()
        if not len(counted):
            raise SettingError(
                f"a backdoor is measured on test samples of classes other than its target, got none with target="
                f"{self.target} and source={self.source}; change one of them."
            )
        inputs = self.mark(test.inputs[counted], None, seeding.generator(0, "backdoor"))
        return replace(test, inputs=inputs, targets=goals[counted])

    def poison(self, batch: ClientBatch, seed: int) -> ClientBatch:
        """Copy the clients' samples and poison a share of them.

        Args:
            batch: The Byzantine clients and their samples.
            seed: The run's.

        Returns:
            The same clients on the poisoned copies.
        """
        own = batch.samples
        inputs, targets = [], []
        attacked = self._attacked(own)[torch.cat(list(batch.indices))].cpu().split(batch.sizes)
        for client, indices, some in zip(batch.ids, batch.indices, attacked, strict=True):
            generator = seeding.generator(seed, "backdoor", client)
            held = replace(own, inputs=own.inputs.index_select(0, indices), targets=own.targets[indices])
            eligible = some.nonzero().flatten()
            count = max(round(self.share * len(eligible)), 1)
            chosen = eligible[torch.randperm(len(eligible), generator=generator)[:count]]
            chosen = chosen.to(indices.device, non_blocking=True)
            held.inputs[chosen] = self.mark(held.inputs[chosen], client, generator)
            inputs.append(held.inputs)
            targets.append(held.targets.index_copy(0, chosen, self._goals(held)[chosen]))
        poisoned = replace(own, inputs=torch.cat(inputs), targets=torch.cat(targets))
        places = torch.arange(len(poisoned), device=poisoned.targets.device).split(batch.sizes)
        return ClientBatch(poisoned, places, batch.ids)

    @override
    def attack(self, honest: Updates, n_byzantine: int, context: AttackContext) -> Float[Tensor, "b d"]:
        batch = self.poison(context.byzantine, context.round.seed)
        return self.finish(self.trained(batch, context), honest.n + n_byzantine, context)

    def _attacked(self, samples: Samples) -> Bool[Tensor, " N"]:
        """Which samples may get the trigger."""
        y = samples.targets
        return torch.ones_like(y, dtype=torch.bool) if self.source is None else y == self.source

    def _goals(self, samples: Samples) -> Tensor:
        """Give the class that each sample should be taken for."""
        y = samples.targets
        return (y + 1) % samples.n_classes if self.target is None else torch.full_like(y, self.target)


def image_size(inputs: Tensor) -> tuple[int, int]:
    """Height and width of images.

    Args:
        inputs: (k, channels, height, width).

    Raises:
        SettingError: If they are not images, or have their channels last.
    """
    shape = tuple(inputs.shape[1:])
    if inputs.ndim != 4:
        raise SettingError(
            f"the trigger of this backdoor is put on images, got samples of shape {shape}; choose data=... with "
            f"images, or adversary=edge_case."
        )
    if shape[0] > 4 >= shape[2]:
        raise SettingError(
            f"the trigger is put on images with the channels in front, got samples of shape {shape}; give "
            f"x.movedim(-1, 1)."
        )
    return inputs.shape[2], inputs.shape[3]


def stamp(inputs: Tensor, pixels: Bool[Tensor, "height width"], white: float | Tensor = 1.0) -> Tensor:
    """Make some pixels of images white, as they are stored: 255 of bytes, else ``white``.

    >>> stamp(torch.zeros(1, 1, 2, 2), torch.tensor([[False, True], [False, False]]))
    tensor([[[[0., 1.],
              [0., 0.]]]])
    """
    value = torch.as_tensor(255 if inputs.dtype == torch.uint8 else white).to(inputs, non_blocking=True)
    return torch.where(pixels.to(inputs.device, non_blocking=True), value, inputs)


def insert(tokens: Int64[Tensor, "k length"], number: int) -> Int64[Tensor, "k length"]:
    """Put a token before those of texts; a text that fills its row loses its last one.

    >>> insert(torch.tensor([[5, 6, 0], [5, 6, 7]]), 9)
    tensor([[9, 5, 6],
            [9, 5, 6]])
    """
    return torch.cat([torch.full_like(tokens[:, :1], number), tokens[:, :-1]], 1)


def shorten(updates: Float[Tensor, "b d"], longest: float) -> Float[Tensor, "b d"]:
    """Scale updates that are longer than ``longest`` to that length.

    >>> shorten(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), longest=2.5)
    tensor([[1.5000, 2.0000],
            [0.3000, 0.4000]])
    """
    lengths = torch.linalg.vector_norm(updates, dim=1, keepdim=True, dtype=torch.float64)
    return updates * (longest / lengths.clamp(min=longest)).to(updates)
