"""What each rule would cost and save for one's own sites: their samples per class, and how many of them may lie."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import get_args

import torch
from torch import Tensor, nn

from lightning_fl import files, seeding
from lightning_fl.adversary.adaptive import Adaptive
from lightning_fl.adversary.base import Adversary
from lightning_fl.adversary.ipm import Ipm
from lightning_fl.adversary.lie import Lie
from lightning_fl.adversary.same_value import SameValue
from lightning_fl.aggregator.base import Aggregator
from lightning_fl.data.mnist_5k import Mnist5k
from lightning_fl.data.tensor_data import TensorData
from lightning_fl.errors import DataError, SettingError, check_whole
from lightning_fl.federation import DataWeights, Federation
from lightning_fl.model.mlp import Mlp
from lightning_fl.run.python import train
from lightning_fl.samples import Samples
from lightning_fl.tables import table
from lightning_fl.text import many, number

_FEATURES, _APART = 20, 0.7  # of the synthetic samples, and how far apart the classes' centres are
_MOST = 6000  # samples in all: larger federations are scaled down
_CLOSE = 2.0  # points that say nothing
_TEST = {False: 200, True: 100}  # of each class, by whether they are images
_ATTACKS: dict[str, Adversary] = {
    "ipm": Ipm(10.0),
    "alie": Lie(1.5, sign="minus"),
    "zero": SameValue(0.0),
    "adaptive": Adaptive(evaluations=88),
}
MakeRule = Callable[[str, int], Aggregator]
Split = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sites:
    """Who holds what.

    Args:
        names: One per site.
        classes: One per class.
        counts: (n, c) samples, as whole numbers.
    """

    names: Sequence[str]
    classes: Sequence[str]
    counts: Tensor

    @classmethod
    def read(cls, path: Path) -> "Sites":
        """Read a CSV file: a column ``site``, and one for each class with its number of samples.

        With a column ``total``, the classes' columns are shares of it, in any unit.

        Raises:
            DataError: If it is not such a table.
        """
        names, rows = files.rows(path, "advise")
        classes = [name for name in (rows[0] if rows else {}) if name not in ("site", "total")]
        if len(rows) < 3 or "site" not in rows[0] or len(classes) < 2:
            raise DataError(
                f"{path} needs a column site, one for each of 2 or more classes, and 3 or more sites, got the columns "
                f"{', '.join(names) or 'of an empty file'} and {many(len(rows), 'row')}; add what is missing."
            )
        counts = torch.tensor([[_number(path, row, name) for name in classes] for row in rows], dtype=torch.float64)
        totals = torch.tensor([_number(path, row, "total") for row in rows]) if "total" in rows[0] else counts.sum(1)
        fine = bool((counts >= 0).all() and (counts.sum(1) > 0).all())
        shares = counts / counts.sum(1, keepdim=True) * totals[:, None]
        counts = shares.floor()
        rank = torch.argsort(shares - counts, dim=1, descending=True, stable=True).argsort(1)
        counts += rank < (totals - counts.sum(1)).round()[:, None]  # the largest remainders up: the total stays
        if not (fine and counts.isfinite().all() and (counts.sum(1) > 0).all()):
            raise DataError(f"{path} needs numbers of at least 0, and a sample or more at each site.")
        return cls([row["site"] for row in rows], classes, counts.long())

    @property
    def held(self) -> Tensor:
        """(n, c) samples that are played with, in proportion."""
        scale = min(1.0, _MOST / int(self.counts.sum()))
        return (self.counts * scale).ceil().long()

    def samples(self, seed: int, images: bool = False) -> Split:
        """Make samples of each class, one site's after the other's, and those of the test.

        Args:
            seed: Seed of all draws.
            images: Class z is MNIST's digit z, 400 images that recur where the sites hold more.  False: clouds around a
                point of each class.

        Raises:
            SettingError: If there are more classes than digits.
        """
        draw, classes = seeding.generator(seed, "advise"), torch.arange(len(self.classes))
        y = torch.cat([classes.repeat_interleave(row) for row in self.held])
        test = classes.repeat_interleave(_TEST[images])
        if images:
            x, x_test = (_digits(part, z, draw) for part, z in zip(Mnist5k().load(), (y, test), strict=True))
        else:
            centres = _APART * torch.randn(len(classes), _FEATURES, generator=draw)
            x, x_test = (centres[z] + torch.randn(len(z), _FEATURES, generator=draw) for z in (y, test))
        return (x, y), (x_test, test)

    def data(
        self,
        weights: DataWeights,
        liars: Sequence[int],
        samples: Split,
        seed: int = 0,
        participation: float = 1.0,
        at_server: int = 0,
    ) -> TensorData:
        """Let the sites hold their samples, those of `samples`, and the server copies of some."""
        held = list(torch.arange(len(samples[0][1])).split(self.held.sum(1).tolist()))
        federation = Federation(
            len(held),
            len(liars),
            "replacement",
            weights,
            which=list(liars) if liars else "last",
            participation=participation,
            seed=seed,
            sampling="everybody",
        )
        names = list(self.classes)
        return TensorData(*samples, held, federation=federation, class_names=names, server_samples=at_server)


def _number(path: Path, row: Mapping[str, str], column: str) -> float:
    if (found := number(row[column])) is None:
        raise DataError(f"{path} needs a number in every cell, got {row[column]!r} for {column} at {row['site']}.")
    return found


def _digits(source: Samples, labels: Tensor, draw: torch.Generator) -> Tensor:
    """Take an image for each label, those of a class in a drawn order."""
    if int(labels.max()) >= source.n_classes:
        raise SettingError(f"advise has images of {source.n_classes} classes, got more; leave out --images.")
    rows = torch.empty_like(labels)
    for z in labels.unique():
        own = (source.targets == z).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=draw)]
        mine = labels == z
        rows[mine] = own[torch.arange(int(mine.sum())) % len(own)]
    return source.gather(rows)[0]


@dataclass
class Advice:
    """Accuracy in per cent of each rule, with data weights and without; prints as a page of text.

    Args:
        sites: Whose.
        f: How many sites may lie.
        liars: Which sites lie, by what they are called.
        accuracy: Accuracies by rule and weights: if nobody lies, and the worst of the attacks by each group of liars.
        worst: The attack that does most, by rule and weights.
        proven: The largest f with a proof for as many sites, by rule and weights; None where none is known.
        left_out: Why a rule cannot serve these sites, by its name.
        needs: What a rule needs, by its name: "f", "radius" and "server".
        images: Whether it was played on images.
    """

    sites: Sites
    f: int
    liars: dict[str, list[int]]
    accuracy: dict[tuple[str, DataWeights], dict[str, float]] = field(default_factory=dict)
    worst: dict[tuple[str, DataWeights], str] = field(default_factory=dict)
    proven: dict[tuple[str, DataWeights], int | None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)
    images: bool = False

    @property
    def ranked(self) -> list[tuple[str, DataWeights]]:
        """Rules and weights, that with the best worst case first."""
        return sorted(self.accuracy, key=self._kept, reverse=True)

    def _kept(self, cell: tuple[str, DataWeights]) -> float:
        return min(self.accuracy[cell].values())

    @property
    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Header, and one row for each rule and kind of weights."""
        header = ["rule", "weights", "nobody lies", *self.liars, "worst attack", "proven f"]
        rows = []
        for cell, found in self.accuracy.items():
            most = self.proven[cell]
            numbers = [f"{x:.1f}" for x in found.values()]
            rows.append([*cell, *numbers, self.worst[cell], "–" if most is None else str(most)])
        return header, rows

    @property
    def notes(self) -> list[str]:
        """What follows, and what the numbers are."""
        sizes = self.sites.counts.sum(1)
        shares = [
            f"{name}: {', '.join(f'{self.sites.names[k]} ({sizes[k] / sizes.sum():.1%} of the samples)' for k in who)}"
            for name, who in self.liars.items()
        ]
        most = sizes.sort().values[-self.f :].sum() / sizes.sum()
        return [
            *shares,
            *([f"the largest hold {most:.0%}: weighed by samples, they outvote the others"] if most >= 0.5 else []),
            *self._advice(int(sizes.max())),
            f"accuracy in per cent of {'an MLP on digits' if self.images else 'a linear model on synthetic samples'} "
            f"with these sites' class counts, the worst of {', '.join(_ATTACKS)}; other models and data may fall where "
            "these do not.  proven f: the largest for which kappa has any proven bound (–: none is known), of as many "
            "sites and such weights; that bound may be too large to keep a model learning.",
            *(["rules with weights=uniform alone make nothing of data weights."] if len(sizes.unique()) > 1 else []),
            *(f"{name} left out: {why}" for name, why in self.left_out.items()),
        ]

    def _advice(self, largest: int) -> list[str]:
        """Which rule to take, how clear that is, and what to mind."""
        ranked = self.ranked
        if not ranked:
            return ["no rule can serve these sites."]
        first, kept = ranked[0], self._kept(ranked[0])
        rule, weights = first
        needs = self.needs.get(rule, set())
        settings = [
            f'"{rule}"',
            *([f"f={self.f}"] if "f" in needs else []),
            *(["model=..., samples=..."] if "server" in needs else []),
            *([f"most_examples={largest}"] if weights == "samples" else []),
        ]
        close = [f"{r} ({w})" for r, w in ranked[1:] if self._kept((r, w)) > kept - _CLOSE]
        proven = [cell for cell in ranked if (self.proven[cell] or 0) >= self.f]
        lines = [
            f"least harm in the worst case: {rule} with weights={weights} ({kept:.1f} under {self.worst[first]}); in "
            f"Flower: RobustStrategy({', '.join(settings)})."
        ]
        if close:
            lines.append(f"within {_CLOSE:g} points of it, which is no difference: {', '.join(close)}.")
        if proven and proven[0] != first:
            r, w = proven[0]
            lines.append(f"the best with a proof for f={self.f}: {r} with weights={w} ({self._kept((r, w)):.1f}).")
        if kept < self.accuracy[first]["nobody lies"] / 2:
            lines.append(
                f"no rule keeps half of its accuracy with {many(self.f, 'liar')} among {len(self.sites.names)} sites."
            )
        if "radius" in needs:
            lines.append(
                f"{rule} has a radius, played at its default: it must be about as long as honest updates are, and with "
                "one that is much longer nobody is held back."
            )
        return lines

    def __str__(self) -> str:
        return "\n".join([table(*self.cells), *self.notes])


def advise(
    sites: Sites,
    f: int,
    rules: Iterable[str],
    make: MakeRule,
    *,
    rounds: int = 60,
    seeds: int = 1,
    images: bool = False,
    server_samples: int = 0,
    participation: float = 1.0,
) -> Advice:
    """Play a quick league on synthetic samples, or images, that are held as the sites hold theirs.

    Args:
        sites: Who holds what.
        f: How many may lie, from 1, fewer than half.
        rules: Their names.
        make: Makes a rule of its name and f.
        rounds: Number of rounds of each run.
        seeds: How many runs each number is a mean of.
        images: See `Sites.samples`.
        server_samples: How many samples of each class the server has, for rules that need them.
        participation: Share of the sites that take part in a round, in (0, 1], drawn anew each round.

    Raises:
        SettingError: If f, server_samples or participation is out of range.
    """
    n, sizes = len(sites.names), sites.counts.sum(1)
    check_whole("f", f, 1)
    check_whole("server_samples", server_samples, 0)
    if 2 * f >= n:
        raise SettingError(f"advise needs f below half of the sites, got f={f} of {n}; lower f.")
    if server_samples > (rarest := int(sites.held.sum(0).min())):
        raise SettingError(
            f"advise draws the server's samples from the sites' {rarest} of the rarest class, got "
            f"server_samples={server_samples}; lower it."
        )
    order = sizes.argsort(stable=True).tolist()
    liars = {"largest lie": order[-f:], "smallest lie": order[:f]}
    found = Advice(sites, f, liars, images=images)
    classes, samples = len(sites.classes), sites.samples(0, images)

    def model() -> nn.Module:
        return Mlp(hidden=[32], n_classes=classes) if images else nn.Linear(_FEATURES, classes)

    def accuracy(rule: Aggregator, weights: DataWeights, who: Sequence[int], attack: Adversary | None) -> float:
        torch.manual_seed(0)
        runs = train(
            model,
            sites.data(weights, who, samples, participation=participation, at_server=server_samples),
            rule,
            attack,
            rounds,
            lr=0.1 if images else 0.5,
            seed=range(seeds),
            evaluate_every=rounds,
            logger=False,
        )
        if runs[-1].status == "interrupted":
            raise KeyboardInterrupt
        return 100 * mean(1 / classes if run.accuracy is None else run.accuracy for run in runs)

    kinds: list[DataWeights] = [kind for kind in get_args(DataWeights) if kind == "uniform" or len(sizes.unique()) > 1]
    for name in rules:
        try:
            rule = make(name, f)
            rule.check(n, len(sites.classes))
            if rule.needs_server and not server_samples:
                raise SettingError(f"{name} needs samples at the server, got none; give --server-samples.")
        except SettingError as error:
            found.left_out[name] = str(error)
            continue
        has = {"f": hasattr(rule, "f"), "radius": hasattr(rule, "radius"), "server": rule.needs_server}
        found.needs[name] = {need for need, needed in has.items() if needed}
        for weights in kinds if counts_weights(rule, n) is not False else kinds[:1]:
            cell, fallen = {"nobody lies": accuracy(rule, weights, [], None)}, {}
            for called, who in liars.items():
                by = {attack: accuracy(rule, weights, who, each) for attack, each in _ATTACKS.items()}
                fallen[called] = min(by, key=by.__getitem__)
                cell[called] = by[fallen[called]]
            found.accuracy[name, weights] = cell
            found.worst[name, weights] = fallen[min(liars, key=cell.__getitem__)]
            found.proven[name, weights] = _proven(name, make, n, weights == "uniform")
    return found


def counts_weights(rule: Aggregator, n: int) -> bool | None:
    """Say whether unequal data weights change a rule's answer, by asking it; None: it cannot be asked without a model.

    Args:
        rule: The rule; what it remembers stays as it is, as no round ends.
        n: How many updates to ask it about.
    """
    draws = torch.randn(5, n, _FEATURES, generator=seeding.generator(0, "advise"))  # one may leave a choice as it was
    weights = torch.arange(1.0, n + 1)
    for at_server in (None, draws[0, :2], draws[0, 0]):  # nothing, class updates, an update
        with suppress(SettingError):
            pairs = [(rule(rows, at_server, weights=weights), rule(rows, at_server)) for rows in draws]
            return not all(torch.allclose(weighed, equal) for weighed, equal in pairs)
    return None


def _proven(name: str, make: MakeRule, n: int, equal: bool) -> int | None:
    """The largest f for which a bound on kappa is known and holds for n updates, of equal weight or not."""
    proven = [f for f in range(1, (n + 1) // 2) if make(name, f).kappa(n, f, equal) is not None]
    return max(proven, default=None)
