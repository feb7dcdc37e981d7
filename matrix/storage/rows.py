"""Records of a table that are made when somebody looks at them; what can be asked by columns is."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow as pa

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


def distinct(rows: Sequence[R], *names: str) -> set[tuple[Any, ...]]:
    """The combinations of values of these fields; two at least."""
    if not isinstance(rows, Rows):
        return set(map(attrgetter(*names), rows))
    found = rows.table.select(list(names)).group_by(list(names)).aggregate([])
    return set(zip(*(found[name].to_pylist() for name in names), strict=True))
