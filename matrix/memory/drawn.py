"""Integers that a launch really loads: those of a case's inputs, drawn again element by element.

The input generator maps a counter to four words (Philox4x64-10: Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011), so that an element needs none of the others. A launch's arguments say how each
tensor of integers was drawn; what was not drawn so, or may have been written since, is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from matrix.memory.operations import as_type, dtype_of, high64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.memory.operations import Array, Value

_ROUNDS = 10
_MULTIPLIERS = np.array([0xD2E7470EE14C6C93, 0xCA5A826395121157], np.uint64)
_WEYL = np.array([0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B], np.uint64)
_WORDS_A_COUNTER = 4
_BITS_LEFT_OUT, _BITS_KEPT = np.uint64(11), np.uint64(53)  # a word's upper ones, as the input generator takes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A tensor of ``count`` integers, at least ``low`` and less than ``high``, in the stream of ``key``."""

    key: tuple[int, int]
    low: int
    high: int
    count: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Drawn:
        """As an argument's ``drawn`` tells it."""
        first, second = (int(half, 16) for half in told["key"])
        bounds = {name: int(told[name]) for name in ("low", "high", "count")}
        return cls(key=(first, second), dtype=np.dtype(told["dtype"]), **bounds)

    def loaded(self, offsets: Array, active: Array, op: str, results: tuple[str, ...]) -> tuple[Value, ...]:
        """What a load of this opcode finds so many bytes into the tensor; unknown where that are no whole elements.

        Lanes that take no part have any value.
        """
        read = op.rpartition(".")[2]
        kind = dtype_of(f"u{read[1:]}" if read[0] == "b" else read)  # bits are extended by zeros
        size = self.dtype.itemsize
        places = offsets // size
        if kind is None or np.dtype(kind).itemsize != size:
            return (None,) * len(results)
        reach = places + len(results)
        if (active & ((offsets % size != 0) | (places < 0) | (reach > self.count))).any():
            return (None,) * len(results)
        places = np.clip(places, 0, max(0, self.count - len(results)))
        found = (self.at(places + i).view(kind) for i in range(len(results)))
        return tuple(as_type(value, _register(name) or kind) for name, value in zip(results, found, strict=True))

    def at(self, places: Array) -> Array:
        """The elements at these places."""
        kept = (_words(self.key, places) >> _BITS_LEFT_OUT) & ((np.uint64(1) << _BITS_KEPT) - np.uint64(1))
        return (kept.astype(np.int64) % (self.high - self.low) + self.low).astype(self.dtype)


# By the beginning of a register's name, as LLVM names them.
_REGISTERS = (("%rd", np.int64), ("%rs", np.int16), ("%r", np.int32))


def _register(name: str) -> type | None:
    return next((kind for begin, kind in _REGISTERS if name.startswith(begin)), None)


def _words(key: tuple[int, int], places: Array) -> Array:
    """Those of the stream at these places; the first counter is 1."""
    wanted: Array = np.ascontiguousarray(places, np.int64)
    a = (wanted // _WORDS_A_COUNTER + 1).view(np.uint64)
    b, c, d = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    keys: Array = np.array(key, np.uint64)
    for _ in range(_ROUNDS):
        high_a, low_a = _product(_MULTIPLIERS[0], a)
        high_c, low_c = _product(_MULTIPLIERS[1], c)
        a, b, c, d = high_c ^ b ^ keys[0], low_c, high_a ^ d ^ keys[1], low_a
        keys = keys + _WEYL
    return np.choose(wanted % _WORDS_A_COUNTER, (a, b, c, d))


def _product(factor: np.uint64, values: Array) -> tuple[Array, Array]:
    return high64(np.full(values.shape, factor), values), values * factor
