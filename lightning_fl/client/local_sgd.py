"""Local SGD: several local steps before an upload.  FedAvg, RAGA and RFA differ in what is uploaded.

FedAvg: H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient
Learning of Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.
RAGA: Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Han Hu, Hangguan Shan, Tony Q. S. Quek, Puning Zhao. Federated Learning
Resilient to Byzantine Attacks and Data Heterogeneity. IEEE Transactions on Mobile Computing, 2025. arXiv:2403.13374.
RFA: Krishna Pillutla, Sham M. Kakade, Zaid Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on
Signal Processing 2022. arXiv:1912.13445.
"""

from copy import copy
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from lightning_fl.client.base import ClientResult, LocalSteps, Sampling, minibatches, rows_of
from lightning_fl.errors import SettingError
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.network.statistics import of_statistics
from lightning_fl.ranges import NonNegativeFloat, PositiveFloat, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch

Upload = Literal["difference", "mean_gradient", "tail_average"]


class LocalSgd(LocalSteps):
    """Take K steps of SGD from the global model, w_k = w_{k-1} - eta h_k, and upload their result.

    Args:
        steps: K, at least 1.
        upload: "difference": (w_0 - w_K) / eta, the sum of the K gradients (FedAvg).  "mean_gradient": (1/K) sum_k h_k
            (RAGA, eq. of z_m).  "tail_average": (w_0 - v) / eta, where v averages the last half of w_1 ... w_K (RFA).
        batch_size: Samples of a mini-batch, drawn anew in each step; a client with fewer uses all.  None: all.
        learning_rate: eta of the local steps, above 0.  None: the server's rate of the round.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.
        epochs: E, in place of steps: each client goes E times through all its samples, in ceil(n_i / batch_size) steps
            each.  None: steps.
        momentum: beta of the local steps, in [0, 1), as torch's SGD has it: v <- beta v + h_k, and the step is along v.
        momentum_reset: Whether v starts anew in each round.  False: a client keeps it from one round in which it takes
            part to the next, n d numbers in all.
        weight_decay: lambda of the local steps: h_k has lambda w_k added.
        clip: Longest gradient of a step; a longer one is scaled to it, before the decay is added.  None: any.

    Raises:
        SettingError: If a setting is out of range, or epochs are asked for beside ``sampling`` or an upload other than
            the difference, which is of equally many steps for all.

    Note:
        Uploads are in units of the local rate, so a server that steps by SGD at that same rate moves to the aggregate
        of the local *models*, which is FedAvg and RFA, and one schedule governs both.  The losses are those of the
        first step, at the global model.  RAGA never uses the gradient at w_K, and neither does this.
    """

    moves_statistics = True

    def __init__(
        self,
        steps: PositiveInt = 5,
        upload: Upload = "difference",
        batch_size: PositiveInt | None = None,
        learning_rate: PositiveFloat | None = None,
        client_chunk: PositiveInt | None = None,
        sampling: Sampling | None = None,
        epochs: PositiveInt | None = None,
        momentum: Annotated[float, Ge(0), Lt(1)] = 0.0,
        momentum_reset: bool = True,
        weight_decay: NonNegativeFloat = 0.0,
        clip: PositiveFloat | None = None,
    ):
        super().__init__(client_chunk)
        self.steps = steps
        self.upload = upload
        self.batch_size = batch_size
        self.sampling: Sampling | None = sampling
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.check_epochs()
        self.momentum = momentum
        self.momentum_reset = momentum_reset
        self.weight_decay = weight_decay
        self.clip = clip
        self.serves_server = not self._keeps

    velocity: Tensor

    def prepare(self, model: nn.Module, clients: ClientBatch) -> None:
        """Give every client v = 0 if it is kept; see the base class."""
        if self._keeps:
            start = flatten(trainable(model).values())
            self.register_buffer("velocity", start.new_zeros(max(clients.ids) + 1, len(start)))

    @property
    def _keeps(self) -> bool:
        return self.momentum > 0 and not self.momentum_reset

    def without_momentum(self) -> "LocalSgd":
        """Start from v = 0, and keep nothing; see the base class."""
        if not self._keeps:
            return self
        other = copy(self)
        other.momentum_reset = True
        return other

    def check_epochs(self) -> None:
        """Refuse epochs beside another upload or drawn mini-batches; see the base class."""
        if self.epochs is not None and (self.upload != "difference" or self.sampling is not None):
            raise SettingError(
                f"{self.spelled()} uploads the difference of whole epochs, got upload={self.upload} and sampling="
                f"{self.sampling} beside epochs={self.epochs}; set upload=difference and sampling=null, or give steps "
                f"instead."
            )

    def upload_rate(self, this_round: Round) -> float:
        """The rate of the local steps, K times that where the mean gradient is uploaded; see the base class."""
        return self.step_rate(this_round) * (self.steps if self.upload == "mean_gradient" else 1)

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's local steps; see the base class."""
        rate = self.step_rate(this_round)
        first, *later = minibatches(batch, self.batch_size, this_round, self.steps, self.sampling, self.epochs)
        result = self.gradients(model, first, out)
        if not (later or self._keeps or self.weight_decay or self.clip):
            return result
        start, done = flatten(trainable(model).values()), result.updates
        own = rows_of(batch, self.velocity, self.spelled()) if self._keeps else None
        velocity = None
        if self.momentum:
            velocity = torch.zeros_like(done) if own is None else self.velocity[own]
        statistics = of_statistics(model)
        self._turn(done, start.expand_as(done), velocity, slice(None), statistics)
        gradients = torch.empty_like(done) if later else done
        tail = torch.zeros_like(done if self.upload == "tail_average" else done[:0])
        places = {client: i for i, client in enumerate(batch.ids)}
        for k, drawn in enumerate(later, start=1):
            if self.upload == "tail_average" and 2 * k > self.steps:
                tail += done
            rows: slice | Tensor = slice(None)
            if len(drawn) < len(batch):
                rows = torch.tensor([places[i] for i in drawn.ids], device=done.device)
            at = start - rate * done[rows]  # w_k = w_0 - eta done
            found = self.local_gradients(model, drawn, start, at, gradients[: len(drawn)])
            self._turn(found, at, velocity, rows, statistics)
            done[rows] += found
        if own is not None and velocity is not None:
            self.velocity[own] = velocity
        if self.upload == "mean_gradient":
            done /= self.steps
        elif self.upload == "tail_average":
            done += tail
            done /= self.steps - self.steps // 2
        return ClientResult(done, result.losses, sum(sum(drawn.sizes) for drawn in [first, *later]))

    def _turn(
        self,
        gradients: Tensor,
        at: Tensor,
        velocity: Tensor | None,
        rows: slice | Tensor,
        statistics: Tensor | None,
    ) -> None:
        """Turn gradients, in their place, into what is stepped along: clipped, with decay, with momentum.

        Args:
            gradients: (h, d) gradients of the clients that take this step.
            at: (h, d) where they are.
            velocity: v of all clients, which moves on.  None: no momentum.
            rows: Which of all clients these are.
            statistics: (d,) marks what is a running statistic, and stays as it is.  None: there are none.
        """
        kept = None if statistics is None else gradients[:, statistics]
        if kept is not None:
            gradients[:, statistics] = 0
        if self.clip is not None:
            lengths = torch.linalg.vector_norm(gradients, dim=1, keepdim=True, dtype=torch.float64)
            gradients *= (self.clip / lengths.clamp(min=self.clip)).to(gradients)
        if self.weight_decay:
            gradients.add_(at, alpha=self.weight_decay)
        if velocity is not None:
            velocity[rows] = gradients[:] = self.momentum * velocity[rows] + gradients
        if kept is not None:
            gradients[:, statistics] = kept

    def local_gradients(self, model: nn.Module, batch: ClientBatch, start: Tensor, at: Tensor, out: Tensor) -> Tensor:
        """Compute what each client steps against.

        Args:
            model: The global model.
            batch: The clients and their mini-batches.
            start: (d,) the global parameters.
            at: (h, d) the clients' parameters.
            out: (h, d) matrix to write into.

        Returns:
            (h, d) gradients of the local losses.
        """
        return self.gradients(model, batch, out, at).updates
