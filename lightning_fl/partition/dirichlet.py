"""Label skew from a Dirichlet distribution, whose alpha says how much of it.

By classes: Mikhail Yurochkin, Mayank Agarwal, Soumya Ghosh, Kristjan Greenewald, Trong Nghia Hoang, Yasaman Khazaeni.
Bayesian Nonparametric Federated Learning of Neural Networks. ICML 2019. arXiv:1905.12022.
By clients: Durmus Alp Emre Acar, Yue Zhao, Ramon Matas, Matthew Mattina, Paul Whatmough, Venkatesh Saligrama.
Federated Learning Based on Dynamic Regularization. ICLR 2021. arXiv:2111.04263.
"""

from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Le
from torch import Tensor

from lightning_fl.errors import SettingError
from lightning_fl.partition.base import Partition, shuffled_classes
from lightning_fl.ranges import PositiveInt

By = Literal["classes", "clients"]

_TRIES = 100


class Dirichlet(Partition):
    """Draw shares from Dir(alpha 1): of each class over the clients, or of each client over the classes.

    Args:
        by: "classes" (Fed-NGA, RAGA): each class is cut by its own draw over the clients, so clients differ in size.
            "clients" (BOBA): all clients have the same size, up to one sample, and each draws its own prior over the
            classes.  Then one sample after another goes to a random client with room left: of a class drawn from the
            client's prior or, once that class is used up, of any class that is not.
        alpha: Concentration, in [1e-6, 1e6]: near 0 a class goes to one client (a client holds one class), large
            values come near ``iid``.
        min_samples: Samples that every client holds, at least 1.  By classes the shares are redrawn until they do,
            at most 100 times; at alpha = 0.01 and 100 clients they never do, and BOBA's setting needs by=clients.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        Fed-NGA and RAGA only name the distribution; by classes is the usual reading.  They do not say what happens to
        a client without samples, which is rare at their alpha: with 100 clients on MNIST there is one in 1 draw of
        2,000 at alpha = 0.2, 1 of 10 at 0.1 and 9 of 10 at 0.05.  By clients at alpha = 0.01 each wants one class, but
        classes wanted too often run out: on MNIST a client holds three quarters of one class and a rest of others.
    """

    def __init__(
        self, by: By = "classes", alpha: Annotated[float, Ge(1e-6), Le(1e6)] = 0.6, min_samples: PositiveInt = 1
    ):
        self.by = by
        self.alpha = alpha
        self.min_samples = min_samples

    def assign(self, targets: Tensor, n_clients: int, n_classes: int, generator: torch.Generator) -> list[Tensor]:
        """Assign every sample to one client; see the base class."""
        if len(targets) < n_clients * self.min_samples:
            raise SettingError(
                f"dirichlet needs {self.min_samples} samples for each of {n_clients} clients, got "
                f"{len(targets)} in all; lower federation.n_clients or min_samples."
            )
        classes = shuffled_classes(targets, n_classes, generator)
        sizes = np.array([len(members) for members in classes])
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        count = self._by_classes if self.by == "classes" else self._by_clients
        # Samples of a class are in random order, so which of them a client gets follows from how many.
        pieces = [members.split(row) for members, row in zip(classes, count(sizes, n_clients, draw), strict=True)]
        return [torch.cat(part) for part in zip(*pieces, strict=True)]

    def _by_classes(self, sizes: np.ndarray, n_clients: int, draw: np.random.Generator) -> list[list[int]]:
        """Make the (c, n_clients) table of how many samples of each class each client gets."""
        for _ in range(_TRIES):
            cumulative = _dirichlet(self.alpha, (len(sizes), n_clients), draw).cumsum(1)
            ends = np.floor(sizes[:, None] * cumulative / cumulative[:, -1:] + 0.5).astype(int)
            table = np.diff(ends, axis=1, prepend=0)
            if table.sum(0).min() >= self.min_samples:
                return table.tolist()
        raise SettingError(
            f"dirichlet by classes with alpha={self.alpha} left one of {n_clients} clients with fewer than "
            f"{self.min_samples} samples in {_TRIES} draws out of {_TRIES}; raise alpha, lower "
            f"federation.n_clients or use by=clients."
        )

    def _by_clients(self, sizes: np.ndarray, n_clients: int, draw: np.random.Generator) -> list[list[int]]:
        """Make the same table, filled sample by sample."""
        total, left = int(sizes.sum()), sizes.tolist()
        priors = _dirichlet(self.alpha, (n_clients, len(sizes)), draw).cumsum(1)
        wanted = [  # the classes that each client will draw
            np.searchsorted(prior[:-1], draw.random(total // n_clients + (i < total % n_clients)), "right").tolist()
            for i, prior in enumerate(priors)
        ]
        clients, classes = list(range(n_clients)), sizes.nonzero()[0].tolist()  # with room, with samples
        table = [[0] * n_clients for _ in left]
        for u, v in draw.random((total, 2)).tolist():
            slot = int(u * len(clients))
            client = clients[slot]
            z = wanted[client].pop()
            if not left[z]:
                z = classes[int(v * len(classes))]
            table[z][client] += 1
            left[z] -= 1
            if not left[z]:
                classes.remove(z)
            if not wanted[client]:
                clients[slot] = clients[-1]
                clients.pop()
        return table


def _dirichlet(alpha: float, shape: tuple[int, int], draw: np.random.Generator) -> np.ndarray:
    """Draw rows from Dir(alpha 1), in logarithms: Gamma(alpha) = U^(1 / alpha) Gamma(alpha + 1) may underflow."""
    logs = np.log(draw.standard_gamma(alpha + 1, shape)) + np.log1p(-draw.random(shape)) / alpha
    shares = np.exp(logs - logs.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True)
