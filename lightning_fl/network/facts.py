"""Facts about a model, found once by running it and remembered."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lightning_fl.network.dropout import KeyedDropout
from lightning_fl.samples import Samples

_S = TypeVar("_S")
_T = TypeVar("_T")

_known: WeakKeyDictionary[nn.Module, dict[Any, Any]] = WeakKeyDictionary()


def once(function: Callable[[nn.Module, _S], _T]) -> Callable[[nn.Module, _S], _T]:
    """Call a function of a model and any samples once for each model, its mode and the choice of what is trained."""

    @wraps(function)
    def ask(model: nn.Module, samples: _S) -> _T:
        trained = (name for name, value in model.named_parameters() if value.requires_grad)
        mixed = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
        kind, answers = (function, model.training, mixed, *trained), _known.setdefault(model, {})
        if kind not in answers:
            answers[kind] = function(model, samples)
        answer: _T = answers[kind]
        return answer

    return ask


@once
def numbers_per_sample(model: nn.Module, samples: Samples) -> int:
    """Count the numbers in a sample's input and in all that a model computes from it.

    Args:
        model: The model.
        samples: Samples that the model takes, whichever.
    """
    x, _ = samples.gather(torch.arange(2, device=samples.targets.device) % len(samples))
    with torch.no_grad(), KeyedDropout(None), _Counter() as counter:
        model(x)
    return (x.numel() + counter.numbers) // 2


@once
def uses_dropout(model: nn.Module, samples: Samples) -> bool:
    """Tell whether the model drops anything, in training and as it is.

    Args:
        model: The model.
        samples: Samples that the model takes, whichever.
    """
    x, _ = samples.gather(torch.arange(2, device=samples.targets.device) % len(samples))
    with torch.no_grad(), KeyedDropout(None) as keyed:
        model(x)
    return keyed.layer > 0


class _Counter(TorchFunctionMode):
    """Counts the numbers that functions give."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.numbers += sum(tensor.numel() for tensor in tensors_in([result]))
        return result


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, lists and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
