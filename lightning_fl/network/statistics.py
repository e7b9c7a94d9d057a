"""Batch normalisation in a federation, whose running statistics clients do not upload.

Sergey Ioffe, Christian Szegedy. Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
Shift. ICML 2015. arXiv:1502.03167.

In training every client normalises by the statistics of its own mini-batch, which no other client can touch.  What
evaluation normalises by is a setting, ``model.buffers``, since the usual answer, a plain mean of the clients' running
statistics beside a robust rule for their parameters, is an open door: one client that sends a variance of 1e30 decides
what the model computes.  It is not offered.

* "refuse", the default: such a model is not trained.  GroupNorm needs no statistics, and a layer that is frozen by
  ``eval()`` keeps those that it has.
* "batch": evaluation normalises by the samples that are evaluated together, at most 128, taken at equal distances from
  all.  Nobody sends statistics, so an attacker has only the parameters to lie about.  Accuracy depends on what comes
  together: the model is none of single samples.
* "recompute": before each evaluation and checkpoint, the server computes the statistics on its own samples
  (``data.server_samples``) anew.  An attacker can shift them only through the parameters.  A server of few or other
  samples than the clients' pays in accuracy.
* "rule": means and variances are coordinates of a client's row, after the layer's weight and bias, and rule and attack
  see them as such, which is what FLPoison does with its flat state dict; counters are left out.  An attacker may send
  any statistics: a rule that bounds each coordinate bounds them as well as it does weights, but a rule that measures
  distances sees statistics, which may be far longer than gradients, first, and a variance may become negative, after
  which evaluation is not finite and the run diverges.  To reproduce others' numbers, not to defend.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_fl.errors import SettingError
from lightning_fl.network.layers import replaced

Buffers = Literal["refuse", "batch", "recompute", "rule"]

# Samples of an evaluation that are normalised together.
_TOGETHER = 128
_KNOWN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
# What turns the way of a statistic in a step into a gradient: one over the rate of the step.
_per_rate: ContextVar[float] = ContextVar("per_rate", default=1.0)


class BatchNorm(nn.Module):
    """Batch normalisation that normalises by the batch in training, and changes no buffer there.

    Args:
        like: torch's layer, whose parameters and statistics are taken over.
        buffers: What evaluation normalises by: "batch" | "recompute" | "rule", see above.

    Raises:
        SettingError: For "rule", if the layer's momentum is None: such a mean over all rounds is no step.

    Note:
        Where a channel has one value, as of one sample without pixels, it has no variance and becomes 0; torch refuses
        to train on it.
    """

    def __init__(self, like: nn.modules.batchnorm._BatchNorm, buffers: Buffers):
        super().__init__()
        self.weight, self.bias, self.eps = like.weight, like.bias, like.eps
        self.share = 0.1 if like.momentum is None else like.momentum
        self.how = buffers
        self.seen: list[tuple[Tensor, Tensor]] | None = None
        statistics: list[Any] = [None, None]
        if buffers != "batch":
            mean = torch.zeros(like.num_features) if like.running_mean is None else like.running_mean
            statistics = [mean, torch.ones_like(mean) if like.running_var is None else like.running_var]
        if buffers == "rule" and like.momentum is None:
            raise SettingError("model.buffers=rule needs layers with a momentum, got None; set it to 0.1.")
        for name, value in zip(("running_mean", "running_var"), statistics, strict=True):
            if buffers == "rule":
                self.register_parameter(name, nn.Parameter(value.detach().clone()))
            else:
                self.register_buffer(name, value)
        self.train(like.training)

    running_mean: Tensor | None
    running_var: Tensor | None

    @property
    def by_batch(self) -> bool:
        """Whether it normalises by the batch as it is now."""
        return self.training or self.running_mean is None or self.seen is not None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (batch, channels, ...)."""
        by_batch, fast = self.by_batch, torch.backends.cudnn.enabled
        held = (self.running_mean, self.running_var)  # parameters, of which torch takes no gradient here
        mean, variance = (None, None) if by_batch else (None if b is None else b.detach() for b in held)
        if self.seen is not None:
            self.seen.append(_statistics(x))
        elif by_batch and self.how == "rule":  # before it, as an activation may write into what comes after
            x = _Follow.apply(x, self.running_mean, self.running_var, *_statistics(x.detach()), self.share)
        y: Tensor = torch.batch_norm(x, self.weight, self.bias, mean, variance, by_batch, 0.0, self.eps, fast)
        return y


def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and unbiased variance of each channel."""
    values = [0, *range(2, x.ndim)]
    if x.numel() == x.shape[1]:
        return x.mean(values), torch.ones_like(x.mean(values))
    variance, mean = torch.var_mean(x, values)
    return mean, variance


class _Follow(torch.autograd.Function):
    """Leave x as it is; in a step of SGD along its gradients each statistic b moves to (1 - share) b + share s."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, variance: Tensor, mean_here: Tensor, variance_here: Tensor, share: float
    ) -> Tensor:
        ctx.ways = share * (mean - mean_here), share * (variance - variance_here)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        mean, variance = (way * _per_rate.get() for way in ctx.ways)
        return g, mean, variance, None, None, None


@contextmanager
def stepping(rate: float, scale: float = 1.0) -> Iterator[None]:
    """Let statistics that are coordinates of a row follow the batches inside, in steps of this rate.

    Args:
        rate: Rate of the step that is taken along the gradient.
        scale: Factor by which gradients are scaled until then.
    """
    before = _per_rate.set(scale / rate if rate else 0.0)
    try:
        yield
    finally:
        _per_rate.reset(before)


def with_statistics(module: nn.Module, buffers: Buffers) -> nn.Module:
    """Replace every batch normalisation inside a module that is not frozen, in place; one of two names once.

    Raises:
        SettingError: If one is of a class that torch does not have, which may compute anything, or was trained
            otherwise.
    """
    for layer in layers(module):
        if layer.how != buffers:
            raise SettingError(
                f"{type(module).__name__} was trained with model.buffers={layer.how} (in Python buffers=), got "
                f"{buffers}; give the same."
            )
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            vars(part)["kept_frozen"] = _frozen(part)
    if buffers == "refuse":
        return module
    return replaced(module, nn.modules.batchnorm._BatchNorm, lambda layer: _with_statistics(layer, buffers))


def _with_statistics(module: nn.modules.batchnorm._BatchNorm, buffers: Buffers) -> nn.Module:
    if _frozen(module):
        return module
    if type(module) not in _KNOWN:
        raise SettingError(
            f"model.buffers={buffers} is for torch's BatchNorm, got {type(module).__name__}; use torch's, or GroupNorm."
        )
    return BatchNorm(module, buffers)


def _frozen(layer: nn.modules.batchnorm._BatchNorm) -> bool:
    return not layer.training and layer.running_mean is not None


def thaw(model: nn.Module) -> nn.Module:
    """Put a model in training mode, but leave batch normalisation frozen that was so when it was trained here."""
    for layer in model.train().modules():
        if getattr(layer, "kept_frozen", False):
            layer.eval()
    return model


def layers(model: nn.Module) -> list[BatchNorm]:
    """The layers that `with_statistics` has put in place."""
    return [module for module in model.modules() if isinstance(module, BatchNorm)]


def mixes(model: nn.Module) -> bool:
    """Whether what a model makes of a sample depends on the batch, so that batches must stay whole."""
    return any(layer.by_batch for layer in layers(model))


def recomputes(model: nn.Module) -> bool:
    """Whether a model has statistics that the server computes."""
    return any(layer.how == "recompute" for layer in layers(model))


def apart(x: Tensor) -> list[slice]:
    """Split a batch to be evaluated into parts of at most 128 samples, each with samples from all over the batch.

    >>> apart(torch.zeros(300))
    [slice(0, None, 3), slice(1, None, 3), slice(2, None, 3)]
    """
    n = -(-len(x) // _TOGETHER)
    return [slice(k, None, n) for k in range(n)]


def of_statistics(model: nn.Module) -> Tensor | None:
    """Mark the coordinates of a row that are statistics, (d,); None: there are none."""
    theirs = {id(p) for layer in layers(model) for p in (layer.running_mean, layer.running_var)}
    trained = [p for p in model.parameters() if p.requires_grad]
    if not any(id(p) in theirs for p in trained):
        return None
    return torch.cat([torch.full((p.numel(),), id(p) in theirs, device=p.device) for p in trained])


@torch.no_grad()
def recompute(model: nn.Module, batches: list[Tensor]) -> None:
    """Compute the running statistics of a model that `recomputes` anew: the mean of those of some batches.

    Args:
        model: The model, in evaluation mode: nothing is dropped out.
        batches: Inputs.
    """
    kept = [layer for layer in layers(model) if layer.how == "recompute"]
    for layer in kept:
        layer.seen = []
    try:
        for batch in batches:
            model(batch)
        for layer in kept:
            seen = layer.seen
            if seen and layer.running_mean is not None and layer.running_var is not None:
                layer.running_mean.copy_(torch.stack([mean for mean, _ in seen]).mean(0))
                layer.running_var.copy_(torch.stack([variance for _, variance in seen]).mean(0))
    finally:
        for layer in kept:
            layer.seen = None
