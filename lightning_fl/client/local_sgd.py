"""Local SGD: several local steps before an upload.  FedAvg, RAGA and RFA differ in what is uploaded.

FedAvg: H. Brendan McMahan, Eider Moore, Daniel Ramage, Seth Hampson, Blaise Aguera y Arcas. Communication-Efficient
Learning of Deep Networks from Decentralized Data. AISTATS 2017. arXiv:1602.05629.
RAGA: Shiyuan Zuo, Xingrun Yan, Rongfei Fan, Han Hu, Hangguan Shan, Tony Q. S. Quek, Puning Zhao. Federated Learning
Resilient to Byzantine Attacks and Data Heterogeneity. IEEE Transactions on Mobile Computing, 2025. arXiv:2403.13374.
RFA: Krishna Pillutla, Sham M. Kakade, Zaid Harchaoui. Robust Aggregation for Federated Learning. IEEE Transactions on
Signal Processing 2022. arXiv:1912.13445.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from lightning_fl.client.base import Client, ClientResult, Sampling, in_cache, minibatches
from lightning_fl.network.parameters import flatten, trainable
from lightning_fl.ranges import PositiveFloat, PositiveInt
from lightning_fl.round import Round
from lightning_fl.samples import ClientBatch

# Numbers that are kept from one round to the next at most: 256 MiB in float32.
_KEPT_NUMBERS = 2**26

Upload = Literal["difference", "mean_gradient", "tail_average"]


class LocalSgd(Client):
    """Take K steps of SGD from the global model, w_k = w_{k-1} - eta h_k, and upload their result.

    Args:
        steps: K, at least 1.
        upload: "difference": (w_0 - w_K) / eta, the sum of the K gradients (FedAvg).  "mean_gradient": (1/K) sum_k h_k
            (RAGA, eq. of z_m).  "tail_average": (w_0 - v) / eta, where v averages the last half of w_1 ... w_K (RFA).
        batch_size: Samples of a mini-batch, drawn anew in each step; a client with fewer uses all.  None: all.
        learning_rate: eta of the local steps, above 0.  None: the server's rate of the round.
        client_chunk: See `Client`.
        sampling: How mini-batches are drawn; see `minibatches`.

    Raises:
        SettingError: If a setting is out of range.

    Note:
        Uploads are in units of the local rate, so a server that steps by SGD at that same rate moves to the aggregate
        of the local *models*, which is FedAvg and RFA, and one schedule governs both.  The losses are those of the
        first step, at the global model.  RAGA never uses the gradient at w_K, and neither does this.
    """

    def __init__(
        self,
        steps: PositiveInt = 5,
        upload: Upload = "difference",
        batch_size: PositiveInt | None = None,
        learning_rate: PositiveFloat | None = None,
        client_chunk: PositiveInt | None = None,
        sampling: Sampling | None = None,
    ):
        super().__init__(client_chunk)
        self.steps = steps
        self.upload = upload
        self.batch_size = batch_size
        self.sampling: Sampling | None = sampling
        self.learning_rate = learning_rate
        self._kept: Tensor | None = None

    def upload_rate(self, this_round: Round) -> float:
        """The rate of the local steps, K times that where the mean gradient is uploaded; see the base class."""
        return self._rate(this_round) * (self.steps if self.upload == "mean_gradient" else 1)

    def _rate(self, this_round: Round) -> float:
        return this_round.learning_rate if self.learning_rate is None else self.learning_rate

    def updates(
        self, model: nn.Module, batch: ClientBatch, this_round: Round, out: Tensor | None = None
    ) -> ClientResult:
        """Take every client's local steps; see the base class."""
        rate = self._rate(this_round)
        first, *later = minibatches(batch, self.batch_size, this_round, self.steps, self.sampling)
        result = self.gradients(model, first, out)
        if not later:
            return result
        start, done = flatten(trainable(model).values()), result.updates
        gradients, at = self._room(done)
        tail = torch.zeros_like(done if self.upload == "tail_average" else done[:0])
        for k, drawn in enumerate(later, start=1):
            if self.upload == "tail_average" and 2 * k > self.steps:
                tail += done
            for some in in_cache(done):
                torch.sub(start, rate * done[some], out=at[some])  # w_k = w_0 - eta done
            done += self.local_gradients(model, drawn, start, at, gradients)
        if self.upload == "mean_gradient":
            done /= self.steps
        elif self.upload == "tail_average":
            done += tail
            done /= self.steps - self.steps // 2
        return ClientResult(done, result.losses, sum(sum(drawn.sizes) for drawn in [first, *later]))

    def _room(self, like: Tensor) -> Tensor:
        """Two matrices like this one, kept for others with no more rows unless they are large.

        On a CPU fresh memory is handed out page by page, which takes longer than what is done with it here.
        """
        kept = self._kept
        rows, d = like.shape
        other = kept is None or (kept.shape[2], kept.dtype, kept.device) != (d, like.dtype, like.device)
        if kept is None or other or kept.shape[1] < rows:
            kept = like.new_empty(2, rows, d)
            self._kept = kept if kept.numel() <= _KEPT_NUMBERS else None
        return kept[:, :rows]

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
