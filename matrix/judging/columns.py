"""Tables by columns: texts as numbers, so that cells are matched and told apart by arithmetic, thousands at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]
    Bools: TypeAlias = NDArray[np.bool_]

ABSENT = -1
_MOST = int(np.iinfo(np.int64).max)


def coded(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """Each value as its place among the distinct values, and those; null is :data:`ABSENT`."""
    encoded = pa.chunked_array(column.chunks or [pa.array([], column.type)]).combine_chunks().dictionary_encode()
    places = encoded.indices.fill_null(ABSENT).to_numpy(zero_copy_only=False).astype(np.int64)
    return places, encoded.dictionary.to_pylist()


def mapped(column: pa.ChunkedArray, read: Callable[[Any], Any], *, null: Any = None) -> NDArray[Any]:
    """What ``read`` makes of each value, asked once for each distinct one."""
    places, values = coded(column)
    return np.array([*map(read, values), null])[places]


def together(columns: Sequence[Ints]) -> Ints:
    """One number for each distinct row of these columns of codes."""
    found: Ints = np.zeros(len(columns[0]), dtype=np.int64)
    values = 1
    for column in columns:
        width = int(column.max(initial=ABSENT)) + 2
        if values * width > _MOST:
            found, values = _ranked(found)
        found, values = found * width + column + 1, values * width
    return _ranked(found)[0]


def _ranked(codes: Ints) -> tuple[Ints, int]:
    """Each as its place among the distinct ones, and how many those are."""
    distinct, places = np.unique(codes, return_inverse=True)
    return places.reshape(-1), len(distinct)


def numbers(column: pa.ChunkedArray) -> Floats:
    """NaN for what is not known."""
    return np.asarray(column.to_numpy(), dtype=np.float64)


def newest(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Of several rows with the same values in these columns the last, where the first stood."""
    code = together([coded(table[name])[0] for name in names])
    distinct, first = np.unique(code, return_index=True)
    if len(distinct) == len(code):
        return table
    last = len(code) - 1 - np.unique(code[::-1], return_index=True)[1]
    return table.take(pa.array(last[np.argsort(first)]))
