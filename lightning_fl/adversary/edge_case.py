"""Edge-case backdoor: rare inputs, which no other client has, with the label that the attacker wants.

Hongyi Wang, Kartik Sreenivasan, Shashank Rajput, Harit Vishwakarma, Saurabh Agarwal, Jy-yong Sohn, Kangwook Lee,
Dimitris Papailiopoulos. Attack of the Tails: Yes, You Really Can Backdoor Federated Learning. NeurIPS 2020.
arXiv:2007.05084.
"""

from dataclasses import replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from lightning_fl.adversary.backdoor import Backdoor, PoisonedShare, shorten
from lightning_fl.adversary.base import AttackContext, Momentum
from lightning_fl.errors import DataError, MissingError, SettingError
from lightning_fl.ranges import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from lightning_fl.samples import Samples
from lightning_fl.text import many, said


class EdgeCase(Backdoor):
    """Replace some of the Byzantine clients' samples by rare inputs of a file, labelled ``target``; see `Backdoor`.

    Nothing is stamped on other samples: success is counted on those of the file's inputs that were not trained on.

    Args:
        path: A tensor (N, ...) saved by ``torch.save``, N at least 2, of the shape and type in which the data set
            stores its inputs: bytes for images, which are scaled and standardised alike.
        target: Class that they should be taken for, not their own.
        share: How many of each Byzantine client's samples make way for them, in (0, 1]; at least one.
        train_share: How many of the file's inputs are trained on, in (0, 1), the first ones; the others are for
            the test.
        radius: epsilon: the upload of a model farther than this from the global one, in l2, is shortened;
            .25 (MNIST) and .083 (CIFAR-10) in the paper.  None: none.
        factor: The updates are multiplied by it then.
        momentum, learning_rate, epochs: See `Trained`.
        from_round, to_round, every: See `Adversary`.

    Raises:
        SettingError: If there is no file; before training, if its inputs are not like the data set's, or the Byzantine
            clients have no samples.
        DataError: If the file is not a tensor of at least two inputs, all finite.

    Note:
        The paper takes ARDIS sevens for MNIST (target 1) and Southwest airplanes for CIFAR-10 (target: truck).  It
        projects during local training; here it is the upload.
    """

    target: int

    def __init__(
        self,
        path: str | None = None,
        target: NonNegativeInt = 1,
        share: PoisonedShare = 0.32,
        train_share: Fraction = 0.5,
        radius: PositiveFloat | None = None,
        factor: PositiveFloat = 1.0,
        momentum: Momentum = "own",
        learning_rate: PositiveFloat | None = None,
        epochs: PositiveInt | None = None,
        from_round: NonNegativeInt = 0,
        to_round: NonNegativeInt | None = None,
        every: PositiveInt = 1,
    ):
        training = {"momentum": momentum, "learning_rate": learning_rate, "epochs": epochs}
        window = {"from_round": from_round, "to_round": to_round, "every": every}
        super().__init__(target, None, share, **training, **window)
        if path is None or not Path(path).is_file():
            raise (SettingError if path is None else MissingError)(
                f"edge_case needs a file of rare inputs, a tensor saved by torch.save, got {path}; set adversary.path."
            )
        self.path = path
        self.train_share = train_share
        self.radius = radius
        self.factor = factor
        inputs = _read(path)
        n_train = min(max(round(train_share * len(inputs)), 1), len(inputs) - 1)
        self._train, self._test = inputs[:n_train], inputs[n_train:]

    @override
    def mark(self, inputs: Tensor, client: int | None, generator: torch.Generator) -> Tensor:
        self._check_like(inputs)
        drawn = torch.randint(len(self._train), (len(inputs),), generator=generator)
        return self._train[drawn].to(inputs, non_blocking=True)

    @override
    def triggered(self, test: Samples) -> Samples:
        self._check_like(test.inputs)
        targets = torch.full((len(self._test),), self.target)
        return replace(test, inputs=self._test.to(test.inputs), targets=targets.to(test.targets.device))

    @override
    def finish(self, updates: Float[Tensor, "b d"], n: int, context: AttackContext) -> Float[Tensor, "b d"]:
        rate = context.client.upload_rate(context.round)
        if self.radius is not None and rate > 0:
            updates = shorten(updates, self.radius / rate)
        return updates * self.factor

    def _check_like(self, inputs: Tensor) -> None:
        ours, theirs = self._train, inputs
        alike = ours.dtype == theirs.dtype or (ours.is_floating_point() and theirs.is_floating_point())
        if ours.shape[1:] != theirs.shape[1:] or not alike:
            raise SettingError(
                f"edge_case needs inputs such as the data set's, {tuple(theirs.shape[1:])} of {theirs.dtype}, got "
                f"{tuple(ours.shape[1:])} of {ours.dtype} in {self.path}."
            )


def _read(path: str) -> Tensor:
    try:
        inputs = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as broken:  # whatever torch says of a broken file
        raise DataError(f"{path} cannot be read as a tensor: {said(broken)[:200]}") from broken
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or len(inputs) < 2:
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
        raise DataError(f"{path} needs a tensor of at least two inputs, got {shape}.")
    bad = (~inputs.flatten(1).isfinite().all(1)).nonzero().flatten().tolist()
    if bad:
        raise DataError(f"{path} holds NaN or inf in {many(len(bad), 'input')} (first: {bad[0]}).")
    return inputs
