"""Records of a table that are made when somebody looks at them; what can be asked by columns is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

R = TypeVar("R")


class Rows(Sequence[R]):
    """The records of a table, made when they are first looked at: whoever goes by columns needs few of them."""

    def __init__(self, table: pa.Table, make: Callable[[pa.Table], list[R]]) -> None:
        self.table = table
        self._make = make
        self._made: list[R] | None = None
        self._known: dict[int, R] = {}

    def taken(self, places: Iterable[int]) -> list[R]:
        """The records at these places, in this order; each is made once."""
        wanted = list(places)
        if self._made is not None:
            return [self._made[place] for place in wanted]
        missing = [place for place in dict.fromkeys(wanted) if place not in self._known]
        if missing:
            made = self._make(self.table.take(pa.array(missing, pa.int64())))
            self._known.update(zip(missing, made, strict=True))
        return [self._known[place] for place in wanted]

    def of(self, table: pa.Table) -> Rows[R]:
        """Records of the same kind from another table."""
        return Rows(table, self._make)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def __getitem__(self, place: int | slice) -> R | list[R]:
        return self._all()[place]

    def _all(self) -> list[R]:
        if self._made is None:
            self._made = self._make(self.table)
        return self._made


def joined_rows(parts: Sequence[Sequence[R]]) -> Rows[R]:
    """Of several tables that were read, one after the other."""
    rows = [part for part in parts if isinstance(part, Rows)]
    assert rows and len(rows) == len(parts), "made by hand, not read"
    return rows[0].of(pa.concat_tables([part.table for part in rows]))


def column(rows: Sequence[R], name: str) -> list[Any]:
    """A field of each record. In a table texts are no enums, and what is structured is JSON; so in the next two."""
    return rows.table[name].to_pylist() if isinstance(rows, Rows) else [getattr(row, name) for row in rows]


def chosen(rows: Sequence[R], name: str, is_wanted: Callable[[Any], bool]) -> list[R]:
    """The records with such a value in this field; of a table, asked once for each distinct one. The name of a field
    of a field has a dot (``facts.registers``); a table has them side by side.
    """
    if not isinstance(rows, Rows):
        return [row for row in rows if is_wanted(attrgetter(name)(row))]
    own = rows.table[name.rpartition(".")[2]]
    wanted = [value for value in own.unique().to_pylist() if is_wanted(value)]
    return rows.taken(np.flatnonzero(pc.is_in(own, pa.array(wanted, own.type)).to_numpy()).tolist())


class ByCell(Mapping[str, Sequence[R]]):
    """The records of each cell id, made when somebody asks for them."""

    def __init__(self, rows: Sequence[R]) -> None:
        self._rows = rows
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, cell_id in enumerate(column(rows, "cell_id")):
            self._places[cell_id].append(place)

    def __getitem__(self, cell_id: str) -> list[R]:
        if cell_id not in self._places:
            raise KeyError(cell_id)
        places = self._places[cell_id]
        return self._rows.taken(places) if isinstance(self._rows, Rows) else [self._rows[place] for place in places]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def distinct(rows: Sequence[R], *names: str) -> set[tuple[Any, ...]]:
    """The combinations of values of these fields; two at least."""
    if not isinstance(rows, Rows):
        return set(map(attrgetter(*names), rows))
    found = rows.table.select(list(names)).group_by(list(names)).aggregate([])
    return set(zip(*(found[name].to_pylist() for name in names), strict=True))
