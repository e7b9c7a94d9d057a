"""What the clients of a round replied, as rows that a rule takes: nothing that a client sends can stop the round.

A reply that does not hold the model (other names, other shapes, bytes that are not numbers) becomes a row of NaN.
So it counts among the f rows that a rule tolerates, as a reply of NaN does, and no client can make the others too few.
A client that sends nothing, an error, or a reply to another round takes no part.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from io import BytesIO
from math import inf, isfinite, nan
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

try:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
except ImportError as error:
    raise ImportError('lightning_fl.flower needs flwr, got none; pip install "lightning-fl[flower]".') from error

from lightning_fl.client.base import Client
from lightning_fl.errors import SettingError
from lightning_fl.updates.updates import Updates

_MEAN, _VARIANCE = "running_mean", "running_var"  # torch's names, in BatchNorm and InstanceNorm


def at_rate(client: Client, learning_rate: float) -> Client:
    """Copy a client, with this rate for itself and what it wraps where they have none of their own."""
    made = deepcopy(client)
    for part in made.modules():
        if isinstance(part, Client) and part.learning_rate is None:
            vars(part)["learning_rate"] = learning_rate
    return made


def check_rate(learning_rate: float) -> None:
    """Check the clients' rate.

    Raises:
        SettingError: If it is no number above 0, or infinite.
    """
    if not (hasattr(learning_rate, "__float__") and 0 < learning_rate < inf):
        raise SettingError(f"learning_rate must be a number above 0 and finite, got {learning_rate!r}.")


class Refused(ValueError):  # noqa: N818  (not an error of ours or of a user's)
    """Why a reply does not count."""


@dataclass(frozen=True)
class Layout:
    """The arrays that make the model: names, shapes, and which of them hold the numbers that clients train.

    Args:
        shapes: Shapes of all arrays, by name.
        trained: Names of those that hold floating-point numbers, in the order of an update's numbers.
        statistics: Names of those that hold running means and variances, which are measured, not trained.
        dtype: Type of an update's numbers.
    """

    shapes: Mapping[str, tuple[int, ...]]
    trained: tuple[str, ...]
    statistics: tuple[str, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, arrays: ArrayRecord) -> "Layout":
        """Take the layout of the global model."""
        dtypes = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        numbers = [name for name, dtype in dtypes.items() if dtype.kind == "f"]
        statistics = tuple(name for name in numbers if name.rpartition(".")[2] in (_MEAN, _VARIANCE))
        trained = tuple(name for name in numbers if name not in statistics)
        dtype = np.result_type(np.float32, *(dtypes[name] for name in trained))
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        return cls(shapes, trained, statistics, min(dtype, np.dtype(float)))

    def count(self, names: Iterable[str]) -> int:
        """Numbers in these arrays together."""
        return sum(int(np.prod(self.shapes[name], dtype=int)) for name in names)

    def write(self, arrays: ArrayRecord, row: np.ndarray, statistics: np.ndarray) -> None:
        """Write a model's numbers into a row, and what it measured into another.

        Raises:
            Refused: If it is not such a model.
        """
        if arrays.keys() != self.shapes.keys():
            odd = sorted(arrays.keys() ^ self.shapes.keys())
            raise Refused(f"its arrays are not the model's: {', '.join(odd[:3])}{', ...' if len(odd) > 3 else ''}")
        with np.errstate(over="ignore", invalid="ignore"):  # what does not fit becomes inf
            for names, to in [(self.trained, row), (self.statistics, statistics)]:
                start = 0
                for name in names:
                    values = read(arrays[name], self.shapes[name], name)
                    part = to[start : start + values.size]
                    np.copyto(part.reshape(self.shapes[name]), values, casting="same_kind")
                    start += values.size
                    if name.endswith(_VARIANCE) and (part < 0).any():
                        raise Refused(f"array {name} holds variances below 0")


def read(array: Array, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Read an array of floating-point numbers without copying it.

    Unlike ``Array.numpy`` it allocates nothing, whatever size the bytes claim, and opens no archives.

    Args:
        array: The array as a client sent it.
        shape: Which it must have.
        name: Name of the array, for the reason.

    Raises:
        Refused: If it is not such an array.
    """
    file = BytesIO(array.data)
    try:
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        found, fortran, dtype = header(file)
    except Exception as error:  # NumPy's parser of headers raises many kinds
        raise Refused(f"array {name} is not in NumPy's format") from error
    if found != shape:
        raise Refused(f"array {name} has shape {found}, the model's has {shape}")
    if dtype.kind != "f":
        raise Refused(f"array {name} holds {dtype}, not floating-point numbers")
    count = int(np.prod(shape, dtype=int))
    if len(array.data) - file.tell() != count * dtype.itemsize:
        raise Refused(f"array {name} has {len(array.data) - file.tell()} bytes, needs {count * dtype.itemsize}")
    values = np.frombuffer(array.data, dtype, count, file.tell())
    return values.reshape(shape, order="F" if fortran else "C")


@dataclass(frozen=True)
class Answers:
    """Who answered a round, in the order of node ids, and what.

    Args:
        nodes: Ids of the nodes, ascending.
        rows: (n, d) one update per node; not finite where a reply was refused.
        statistics: (n, s) the running means and variances of each node's model.
        claims: (n,) weight of each; None: all equal.
        refused: Why, by node id.
        absent: Nodes that were asked and take no part, with the reason.
        contents: Contents of the replies that were not refused.
    """

    nodes: list[int]
    rows: Float[Tensor, "n d"]
    statistics: Float[np.ndarray, "n s"]
    claims: Float[Tensor, " n"] | None
    refused: dict[int, str]
    absent: dict[int, str]
    contents: list[RecordDict]

    def updates(self, refused: bool) -> Updates:
        """Make the rows what a rule takes, with or without those whose reply was refused."""
        if refused:
            return Updates(self.rows, self.claims, self.nodes)
        kept = self._kept
        nodes = [self.nodes[i] for i in kept]
        return Updates(self.rows[kept], None if self.claims is None else self.claims[kept], nodes)

    def measured(self) -> Float[Tensor, " s"]:
        """Take each statistic's median over the replies that were not refused, of which there is at least one."""
        return torch.from_numpy(np.median(self.statistics[self._kept].astype(float), axis=0))

    @property
    def _kept(self) -> list[int]:
        return [i for i, node in enumerate(self.nodes) if node not in self.refused]


def answering(
    replies: Iterable[Message], asked: Collection[int], group: str
) -> tuple[dict[int, list[Message]], dict[int, str]]:
    """Sort replies by node, in the order of node ids; say why the other nodes that were asked take no part.

    Args:
        replies: The replies, in any order, which decides nothing.  Those of nodes that were not asked are left out.
        asked: Ids of the nodes that were asked.
        group: The round's group id, which its messages carry.
    """
    absent, by_node = dict.fromkeys(asked, "no reply"), dict[int, list[Message]]()
    for reply in replies:
        node = reply.metadata.src_node_id
        if node not in absent:
            continue
        if reply.has_error():
            absent[node] = f"error: {reply.error.reason}"
        elif reply.metadata.group_id != group:
            absent[node] = "its reply is to another round"
        else:
            by_node.setdefault(node, []).append(reply)
    return dict(sorted(by_node.items())), {node: why for node, why in absent.items() if node not in by_node}


def gather(
    replies: Iterable[Message],
    asked: Collection[int],
    group: str,
    layout: Layout,
    sent: Float[Tensor, " d"],
    learning_rate: float,
    keys: tuple[str, str],
    most_examples: int | None,
) -> Answers:
    """Turn the replies of a round into updates, (what was sent - what came back) / learning rate.

    Args:
        replies: See `answering`, like the next two.
        asked: See there.
        group: See there.
        layout: The model's.
        sent: The numbers of the global model.
        learning_rate: See `RobustStrategy`.
        keys: Keys of the array record, and of the metric that says on how many samples a client trained.
        most_examples: See `RobustStrategy`.
    """
    by_node, absent = answering(replies, asked, group)
    nodes = list(by_node)
    rows, statistics = (
        np.empty((len(nodes), layout.count(names)), layout.dtype) for names in (layout.trained, layout.statistics)
    )
    claims, refused = np.ones(len(nodes)), dict[int, str]()
    for i, node in enumerate(nodes):
        try:
            claims[i] = _write(by_node[node], layout, rows[i], statistics[i], keys, most_examples)
        except Refused as error:
            refused[node] = str(error)
            rows[i] = np.nan
    updates = torch.from_numpy(rows).neg_().add_(sent)
    if learning_rate != 1:
        updates /= learning_rate
    for i in (~updates.sum(1).isfinite()).nonzero().flatten().tolist():  # a sum of huge numbers may be inf
        if nodes[i] not in refused and not updates[i].isfinite().all():
            refused[nodes[i]] = "its numbers are not all finite"
    for i in np.flatnonzero(~np.isfinite(statistics).all(1)).tolist():
        if nodes[i] not in refused:
            refused[nodes[i]] = "its running statistics are not all finite"
            updates[i] = nan
    contents = [by_node[node][0].content for node in nodes if node not in refused]
    weights = None if most_examples is None else torch.from_numpy(claims)
    return Answers(nodes, updates, statistics, weights, refused, absent, contents)


def _write(
    replies: list[Message],
    layout: Layout,
    row: np.ndarray,
    statistics: np.ndarray,
    keys: tuple[str, str],
    most_examples: int | None,
) -> float:
    """Write a client's model into its row; give its weight.  A copy of a reply changes nothing."""
    content = replies[0].content
    if any(reply.content != content for reply in replies[1:]):
        raise Refused(f"the node sent {len(replies)} different replies")
    if keys[0] not in content.array_records:
        raise Refused(f"it holds no arrays under {keys[0]!r}")
    layout.write(content.array_records[keys[0]], row, statistics)
    return 1.0 if most_examples is None else min(_examples(content, keys[1]), float(most_examples))


def _examples(content: RecordDict, key: str) -> float:
    """What a client claims of its samples."""
    for record in content.metric_records.values():
        claim = record.get(key)
        if claim is not None:
            number = _number(claim)
            if not (isfinite(number) and number >= 0):
                raise Refused(f"its {key} is not a finite number of at least 0")
            return number
    raise Refused(f"it does not say its {key}")


def _number(metric: Any) -> float:
    """A metric as one number; nan where it is none, or, an integer, none that a float holds."""
    try:
        return float(metric)
    except (TypeError, OverflowError):
        return nan


def median_metrics(contents: list[RecordDict], weighted_by_key: str) -> MetricRecord:
    """Take the median over clients of each metric: what a minority claims decides nothing.

    In place of Flower's ``aggregate_metricrecords``, a mean weighted by what clients claim.

    Args:
        contents: The replies' records.
        weighted_by_key: Name of the metric that says how many samples a client has; left out.

    Returns:
        The median of the finite single numbers of each metric that more than half of the clients report as such.

    >>> losses = [RecordDict({"metrics": MetricRecord({"loss": loss})}) for loss in (0.5, 0.7, 1e9)]
    >>> dict(median_metrics(losses, "num-examples"))
    {'loss': 0.7}
    """
    found: dict[str, list[float]] = {}
    for content in contents:
        metrics: dict[str, Any] = {}
        for record in content.metric_records.values():
            metrics |= record
        for key, value in metrics.items():
            number = _number(value)
            if key != weighted_by_key and isfinite(number):
                found.setdefault(key, []).append(number)
    shared = {key: values for key, values in sorted(found.items()) if 2 * len(values) > len(contents)}
    return MetricRecord({key: float(np.median(values)) for key, values in shared.items()})
