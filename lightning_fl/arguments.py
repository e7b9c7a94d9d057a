"""What a class takes, its own arguments and those that it passes on to its bases, and what it was given of them."""

from collections.abc import Callable, Iterator
from inspect import Parameter, signature
from typing import Any

from lightning_fl.ranges import NAMED


def takers(thing: Any) -> Iterator[tuple[Callable[..., Any], list[Parameter]]]:
    """Yield what takes the arguments of a class, each with its parameters.

    That is its ``__init__`` and, as long as the last one takes ``**``, those of its bases; of a function, itself.

    Raises:
        TypeError, ValueError: If one has no signature.
    """
    owners = [vars(owner)["__init__"] for owner in getattr(thing, "__mro__", [])[:-1] if "__init__" in vars(owner)]
    for function in owners or [thing]:
        parameters = list(signature(function).parameters.values())[len(owners) > 0 :]
        yield function, parameters
        if not is_open(parameters):
            return


def is_open(parameters: list[Parameter]) -> bool:
    """Whether parameters take any name."""
    return any(parameter.kind == Parameter.VAR_KEYWORD for parameter in parameters)


def named(parameters: list[Parameter]) -> list[Parameter]:
    """List the parameters that can be given by name."""
    return [parameter for parameter in parameters if parameter.kind in NAMED]


def arguments(kind: type) -> dict[str, Parameter]:
    """List the arguments of a class by name, those of its bases that it passes on included.

    >>> from lightning_fl.client.fedprox import FedProx
    >>> [name for name in arguments(FedProx) if name in ("mu", "steps")]
    ['mu', 'steps']
    """
    found: dict[str, Parameter] = {}
    for _, parameters in takers(kind):
        for parameter in named(parameters):
            found.setdefault(parameter.name, parameter)
    return found


def settings(thing: object) -> str:
    """Describe an aggregator, adversary, partition or client by its name and its arguments.

    What its class has in ``unsaid`` is left out at the value that stands there.
    """
    import pytorch_lightning as pl

    unsaid = getattr(thing, "unsaid", {})
    values = {name: getattr(thing, name) for name in arguments(type(thing)) if hasattr(thing, name)}
    values = {name: value for name, value in values.items() if name not in unsaid or value != unsaid[name]}
    shown = [settings(v) if isinstance(v, pl.Callback) else v for v in values.values()]
    return f"{type(thing).__name__}({', '.join(f'{k}={v}' for k, v in zip(values, shown, strict=True))})"
