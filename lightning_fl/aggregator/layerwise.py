"""A rule asked about each tensor of the model by itself.

Proofs about the rule hold for each tensor: the distance from the honest mean, squared and added up over tensors, is at
most the rule's kappa times the honest variance.
"""

from collections.abc import Collection
from copy import deepcopy
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from typing_extensions import override

from lightning_fl.aggregator.base import Aggregation, Aggregator, Motion, aggregated
from lightning_fl.aggregator.wrapper import Wrapper
from lightning_fl.errors import SettingError
from lightning_fl.server_oracle import ServerOracle
from lightning_fl.updates.columns import Layer, Layout
from lightning_fl.updates.layout import columns_of, side_by_side
from lightning_fl.updates.updates import Updates

Groups = Literal["tensor", "module"]


def groups_of(layout: Layout, groups: Groups) -> dict[str, list[Layer]]:
    """Name the groups of tensors that are asked about together, in the order of their first ones.

    >>> layout = (Layer("fc.weight", 0, 6, 2), Layer("fc.bias", 6, 8, 1), Layer("out.weight", 8, 10, 2))
    >>> {name: len(layers) for name, layers in groups_of(layout, "module").items()}
    {'fc': 2, 'out': 1}
    """
    found: dict[str, list[Layer]] = {}
    for layer in layout:
        found.setdefault(layer.name if groups == "tensor" else layer.module, []).append(layer)
    return found


def _tell(copied: Aggregator, rule: Aggregator) -> None:
    """Tell a copy of a rule, and those inside it, the f that these have by now: `Fldetector` lowers it for a round."""
    if "f" in vars(rule):
        vars(copied)["f"] = vars(rule)["f"]
    if isinstance(rule, Wrapper) and isinstance(copied, Wrapper):
        _tell(copied.rule, rule.rule)


class _Part(ServerOracle):
    """The server as seen in some columns; its draws are the group's own."""

    def __init__(self, server: ServerOracle, columns: Int64[Tensor, " k"] | slice, name: str):
        self._server, self._columns, self._name = server, columns, name
        self.round = server.round

    @property
    @override
    def n_classes(self) -> int:
        return self._server.n_classes

    @property
    @override
    def upload_rate(self) -> float:
        return self._server.upload_rate

    @cached_property
    @override
    def class_updates(self) -> Float[Tensor, "c k"]:
        return self._server.class_updates[:, self._columns]

    @cached_property
    @override
    def update(self) -> Float[Tensor, " k"]:
        return self._server.update[self._columns]

    @cached_property
    @override
    def parameters(self) -> Float[Tensor, " k"]:
        return self._server.parameters[self._columns]

    @override
    def generator(self, purpose: str) -> torch.Generator:
        return self._server.generator(f"{purpose} {self._name}")

    @override
    def derive_seed(self, purpose: str) -> int:
        return self._server.derive_seed(f"{purpose} {self._name}")

    @override
    def losses_after(self, updates: Float[Tensor, "k d"]) -> Float[Tensor, " k"]:
        raise AssertionError("refused when the rule was made")

    @override
    def gradient_after(self, update: Float[Tensor, " d"], learning_rate: float) -> Float[Tensor, " d"]:
        raise AssertionError("refused when the rule was made")


class Layerwise(Wrapper):
    """Ask a rule about each tensor's columns alone, and put the answers together.

    A rule with a memory has one for each group.  Trust is the groups' trust by their share of the columns.

    Args:
        rule: The rule; what is a length in its settings is one of a tensor now.
        groups: "tensor": every trained tensor by itself; "module": those of one module together, as weight and bias.

    Note:
        An update with NaN or inf anywhere is left out everywhere.  Rules by coordinate are as they were.  In tensors of
        one or two numbers rules by distance have little to go by.  Where processes share the columns, every process is
        shown each group as a whole, one after the other.

    >>> from lightning_fl.aggregator.medoid import Medoid
    >>> layout = (Layer("weight", 0, 1, 2), Layer("bias", 1, 2, 1))
    >>> updates = Updates(torch.tensor([[1.0, 9.0], [2.0, 2.0], [9.0, 1.0]]), layout=layout)
    >>> from lightning_fl.server_oracle import GivenServer
    >>> Layerwise(Medoid()).aggregate(updates, GivenServer(None)).update
    tensor([2., 2.])
    """

    needs_layout = True

    def __init__(self, rule: Aggregator, groups: Groups = "tensor"):
        super().__init__(rule)
        if rule.needs_server == "samples":
            raise SettingError(
                f"layerwise shows its rule one tensor at a time, {type(rule).__name__} computes losses of whole "
                f"models; use another, such as krum."
            )
        self.groups = groups
        self._rules: dict[str, Aggregator] = {}

    @property
    def exact(self) -> bool:
        """Whether the rule is; see the base class."""
        return self.rule.exact

    @property
    def moves_with(self) -> Collection[Motion]:
        """All but a rotation, which mixes tensors, if the rule does; see the base class."""
        return [motion for motion in self.rule.moves_with if motion != "rotation"]

    def kappa(self, n: int, b: int, equal: bool) -> float | None:
        """Return the rule's; see the base class."""
        return self.rule.kappa(n, b, equal)

    def aggregate(self, updates: Updates, server: ServerOracle) -> Aggregation:
        """Aggregate one round; see the base class."""
        finite = updates.norms().isfinite()
        broken = None if finite.all() else ~finite[:, None].to(updates.device)
        update, trusts = torch.empty_like(updates.like[0]).contiguous(), []
        for name, layers in groups_of(updates.layout, self.groups).items():
            columns = columns_of(layers, updates.device)
            part = updates.columns(columns)
            if broken is not None:
                part = Updates(part.rows.masked_fill(broken, torch.nan), updates.data_weights, updates.ids)
            part.layout = side_by_side(layers)
            rule = self._rules.setdefault(name, deepcopy(self.rule))
            _tell(rule, self.rule)
            found = aggregated(rule, part, _Part(server, columns, name))
            update[columns] = found.update
            trusts.append(None if found.trusted is None else found.trusted * (part.d / updates.d))
        known = [trust for trust in trusts if trust is not None]
        return Aggregation(update, trust=sum(known[1:], known[0]) if len(known) == len(trusts) else None)

    def on_train_batch_end(self, *args: Any) -> None:
        """Tell each group's rule that the round is over."""
        for rule in self._rules.values():
            rule.on_train_batch_end(*args)

    def state_dict(self) -> dict[str, Any]:
        """What each group's rule remembers."""
        return {name: rule.state_dict() for name, rule in self._rules.items()} if self.remembers else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give each group's rule back what it remembered."""
        self._rules = {name: deepcopy(self.rule) for name in state_dict}
        for name, state in state_dict.items():
            self._rules[name].load_state_dict(state)
