"""A study: cells, and what is known of their runs.

A run is known by three names.  Its *labels* and its seed say where it stands in a study: they are columns of the files.
Its cell's *key* (`lightning_fl.study.cell.keys`) says what was asked for, and is known without composing anything: a
record whose key is another has measured other settings under the same labels, and does not count.  Its *identity*
(`lightning_fl.run.identity`) says what its result depends on: cells of different keys may be one run, which is then
trained once.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lightning_fl import files
from lightning_fl.run.lock import held
from lightning_fl.study.cell import Cell, keys
from lightning_fl.study.pivot import half_interval
from lightning_fl.study.store import Record, Store, content, read
from lightning_fl.study.twins import NUMBER, Pair


class Study(ABC):
    """Cells and their records, found by what a cell asks for; what tables and tournaments have in common.

    Args:
        path: File of the records of runs trained here; several processes may add to it.
        fields: Their columns.
    """

    labels: Sequence[str]
    """Columns that have a cell's labels."""

    seeds: Sequence[int]
    """Of every cell."""

    def __init__(self, path: Path, fields: Sequence[str]):
        self.store, self.records = Store(path, fields), dict[str, Record]()
        self._key, self._keys = keys(), dict[Cell, str]()

    @abstractmethod
    def cell_of(self, row: Record) -> Cell | None:
        """Give the cell of a record; None if the study has none of its labels."""

    @abstractmethod
    def points(self, labels: Any, seed: int, twin: int | None = None, /) -> float | None:
        """Give the result of a cell's run, or of its twin, in points; None if there is none."""

    def key(self, cell: Cell) -> str:
        """Tell what a cell asks for; see `keys`."""
        if cell not in self._keys:
            self._keys[cell] = self._key(cell)
        return self._keys[cell]

    def put(self, row: Record, kept: bool = False) -> bool:
        """Let a record count for its cell, and for others that ask for the same.

        Args:
            row: The record.
            kept: Whether it is of scripts/tables, whose settings a test compares.

        Returns:
            Whether it does: what other settings have measured under these labels does not.
        """
        cell = self.cell_of(row)
        counts = cell is not None and (kept or row["key"] == self.key(cell))
        if cell is not None and counts:
            self.records[self.key(cell)] = row
        return counts

    def refresh(self) -> None:
        """Load results that any process has finished since, also of cells that only it was asked for."""
        for row in self.store.refresh():
            self.put(row)

    def row(self, cell: Cell) -> Record | None:
        """Get what is known of a cell's run."""
        return self.records.get(self.key(cell))

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Leave out what is known, and of cells that ask for the same all but the first."""
        left: dict[str, Cell] = {}
        for cell in cells:
            if self.row(cell) is None:
                left.setdefault(self.key(cell), cell)
        return list(left.values())

    def add(self, cell: Cell, record: Record) -> None:
        """Keep what a cell's run measured."""
        place = {**dict(zip(self.labels, cell.labels, strict=True)), "seed": cell.seed, "twin": cell.twin}
        with held(self.store.path.parent, wait=True):  # a report may write the file anew
            self.store.begin()
            self.store.add(record | place | {"key": self.key(cell)})
        self.put(self.store.rows[-1])

    def pairs(self, places: Iterable[Any]) -> dict[Any, Pair]:
        """Pair runs with their twins, by their labels, each at the first seed at which there are both."""
        found: dict[Any, Pair] = {}
        if not any(row.get("twin") for row in self.records.values()):
            return found
        for place in places:
            runs = {seed: value for seed in self.seeds if (value := self.points(place, seed)) is not None}
            both = ((seed, twin) for seed in runs if (twin := self.points(place, seed, NUMBER)) is not None)
            for seed, twin in islice(both, 1):
                half = half_interval([*runs.values()]) if len(runs) > 1 else None
                found[place] = Pair(", ".join(place[:3]), runs[seed], twin, half)
        return found

    def keep(self, path: Path, fields: Sequence[str], rows: Iterable[Record], dropped: Collection[Record] = ()) -> Path:
        """Merge records into a file of scripts/tables, in place of those of the same labels, seed and twin.

        Args:
            path: The file.
            fields: Its columns.
            rows: The records.
            dropped: Rows of the file to leave out.

        Returns:
            The file.
        """
        with held(path.parent, wait=True):
            before = read(path, self.store.fields)
            left = (row for row in before if row not in dropped)
            found = content(fields, {self.place(row): row for row in [*left, *rows]}.values())
            if found != content(fields, before) or not path.exists():
                files.write(path, found)
        return path

    def place(self, row: Record) -> tuple[Any, ...]:
        """Tell a record from the study's others."""
        return tuple(row[name] for name in (*self.labels, "seed", "twin"))
