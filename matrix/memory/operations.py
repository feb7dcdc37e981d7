"""The integer, bit, predicate and conversion instructions of PTX over NumPy arrays.

A register holds an array of shape (blocks or 1, threads or 1): what is uniform stays small. ``.b32`` and
``.s32`` registers are int32, ``.b64`` int64, ``.b16`` int16, predicates bool; arithmetic wraps as the GPU's.
Semantics: PTX ISA, "Integer Arithmetic Instructions", "Comparison and Selection", "Logic and Shift".
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable

Array: TypeAlias = npt.NDArray[Any]
Value: TypeAlias = Array | None  # of a register: None is unknown

_INT = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_TYPE = re.compile(r"^[usb](8|16|32|64)$")
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}


def dtype_of(name: str) -> type | None:
    """The NumPy type of a PTX type; None for floating point, whose values are not evaluated."""
    if name == "pred":
        return np.bool_
    match = _TYPE.match(name)
    if match is None:
        return None
    return (_UNSIGNED if name[0] == "u" else _INT)[int(match[1])]


def as_type(value: Array, dtype: type) -> Array:
    """The bits of a register read as another type; widened or cut where the sizes differ."""
    if value.dtype == dtype:
        return value
    wanted = np.dtype(dtype)
    if wanted.kind != "b" and value.dtype.kind != "b" and wanted.itemsize == value.dtype.itemsize:
        return value.view(dtype)
    return value.astype(dtype)


def stored(value: Array) -> Array:
    """A result as registers hold it: signed, or bool."""
    return value.view(_INT[value.dtype.itemsize * 8]) if value.dtype.kind == "u" else value


@functools.cache
def operation(op: str) -> tuple[Callable[..., Array], tuple[type, ...]] | None:
    """The function of an opcode and the types that its operands are read as (the last one repeats)."""
    parts = op.split(".")
    name, kind = parts[0], dtype_of(parts[-1])
    if name == "cvt":
        return _conversion(parts)
    if name in ("cvta", "mov"):
        return (lambda a: a, (kind,)) if kind else None
    if kind is None or "sat" in parts:
        return None
    builder = _BUILDERS.get(name)
    return builder(parts, kind) if builder else None


def _wide(kind: type) -> type:
    bits = np.dtype(kind).itemsize * 16
    return (_UNSIGNED if np.dtype(kind).kind == "u" else _INT)[bits]


def _multiplied(parts: list[str], kind: type) -> tuple[Callable[..., Array], tuple[type, ...]] | None:
    mode = parts[1]
    if mode == "wide":
        wide = _wide(kind)
        return lambda a, b: a.astype(wide) * b, (kind,)
    if mode == "hi":
        return (high64 if np.dtype(kind).itemsize == 8 else _high), (kind,)
    return np.multiply, (kind,)


def _multiplied_and_added(parts: list[str], kind: type) -> tuple[Callable[..., Array], tuple[type, ...]] | None:
    multiplied = _multiplied(parts, kind)
    if multiplied is None:
        return None
    function = multiplied[0]
    last = _wide(kind) if parts[1] == "wide" else kind
    return lambda a, b, c: function(a, b) + c, (kind, kind, last)


def _high(a: Array, b: Array) -> Array:
    wide = _wide(a.dtype.type)
    return ((a.astype(wide) * b.astype(wide)) >> wide(8 * a.dtype.itemsize)).astype(a.dtype)


def high64(a: Array, b: Array) -> Array:
    """Upper half of a 64-bit product, through 32-bit limbs."""
    unsigned_a, unsigned_b = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = unsigned_a & low, unsigned_a >> half, unsigned_b & low, unsigned_b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, unsigned_b, np.uint64(0)) - np.where(b < 0, unsigned_a, np.uint64(0))
    return high.view(a.dtype)


def _divided(a: Array, b: Array) -> Array:
    """Towards zero; a division by zero gives what does not matter."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient < 0) & (quotient * safe != a)).astype(a.dtype)
    return quotient


def _remainder(a: Array, b: Array) -> Array:
    return a - _divided(a, b) * b


def _shifted(parts: list[str], kind: type) -> tuple[Callable[..., Array], tuple[type, ...]]:
    """Amounts beyond the width clamp (PTX ISA, "shl", "shr"); NumPy leaves them undefined."""
    bits = np.dtype(kind).itemsize * 8

    def shift_left(a: Array, amount: Array) -> Array:
        return np.where(amount < bits, a << np.minimum(amount, bits - 1).astype(a.dtype), a.dtype.type(0))

    def shift_right(a: Array, amount: Array) -> Array:
        return a >> np.minimum(amount, bits - 1).astype(a.dtype)

    def shift_right_unsigned(a: Array, amount: Array) -> Array:
        return np.where(amount < bits, shift_right(a, amount), a.dtype.type(0))

    if parts[0] == "shl":
        return shift_left, (kind, np.uint32)
    if parts[-1][0] == "s":
        return shift_right, (kind, np.uint32)
    return shift_right_unsigned, (_UNSIGNED[bits], np.uint32)


def _compared(parts: list[str], kind: type) -> tuple[Callable[..., Array], tuple[type, ...]] | None:
    function = _COMPARE.get(parts[1])
    if function is None or len(parts) != 3:
        return None
    return function, (kind,)


def _field(a: Array, start: Array, length: Array) -> Array:
    """``bfe``: a field of bits, sign-extended for signed types."""
    bits = a.dtype.itemsize * 8
    unsigned = a.view(_UNSIGNED[bits]).astype(np.uint64)
    begin = np.minimum(start & 0xFF, 63).astype(np.uint64)
    size = np.minimum(length & 0xFF, 63).astype(np.uint64)
    one = np.uint64(1)
    value = (unsigned >> begin) & ((one << size) - one)
    if a.dtype.kind == "i":
        sign = np.where(size > 0, (value >> np.maximum(size, one) - one) & one, np.uint64(0))
        value = np.where(sign == one, value | ~((one << size) - one), value)
    return value.astype(a.dtype)


def _inserted(a: Array, b: Array, start: Array, length: Array) -> Array:
    """``bfi``: the low bits of ``a`` into ``b``."""
    one, begin = np.uint64(1), np.minimum(start & 0xFF, 63).astype(np.uint64)
    size = np.minimum(length & 0xFF, 63).astype(np.uint64)
    mask = ((one << size) - one) << begin
    bits = _UNSIGNED[a.dtype.itemsize * 8]
    merged = (b.view(bits).astype(np.uint64) & ~mask) | ((a.view(bits).astype(np.uint64) << begin) & mask)
    return merged.astype(bits).view(a.dtype)


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    """``prmt`` in its default mode: each result byte is one of eight, or the sign of one."""
    both = (b.view(np.uint32).astype(np.uint64) << np.uint64(32)) | a.view(np.uint32).astype(np.uint64)
    result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), np.uint64)
    for byte in range(4):
        choice = (selector.view(np.uint32) >> np.uint32(4 * byte)) & np.uint32(0xF)
        chosen = (both >> ((choice & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)
        sign = np.where(chosen >= np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        chosen = np.where(choice >= np.uint32(8), sign, chosen)
        result = result | (chosen << np.uint64(8 * byte))
    return result.astype(np.uint32).view(np.int32)


def _three_inputs(a: Array, b: Array, c: Array, table: Array) -> Array:
    """``lop3``: any function of three bits, given as a truth table."""
    wanted = int(table.flat[0])
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for row in range(8):
        if wanted >> row & 1:
            terms = [value if row >> bit & 1 else ~value for value, bit in ((a, 2), (b, 1), (c, 0))]
            result = result | (terms[0] & terms[1] & terms[2])
    return result


def _funnel(parts: list[str], _kind: type) -> tuple[Callable[..., Array], tuple[type, ...]]:
    """``shf``: 32 bits out of a 64-bit pair, shifted left (upper half) or right (lower half)."""
    left, wrap = parts[1] == "l", parts[2] == "wrap"

    def shifted(low: Array, high: Array, amount: Array) -> Array:
        count = (amount & np.uint32(31)) if wrap else np.minimum(amount, np.uint32(32))
        pair = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        moved = (pair << count.astype(np.uint64)) >> np.uint64(32) if left else pair >> count.astype(np.uint64)
        return moved.astype(np.uint32)

    return shifted, (np.uint32,)


def _counted(a: Array) -> Array:
    unsigned = a.view(_UNSIGNED[a.dtype.itemsize * 8])
    bits = np.unpackbits(np.ascontiguousarray(unsigned)[..., None].view(np.uint8), axis=-1)
    return bits.sum(-1).astype(np.int32)


def _leading_zeros(a: Array) -> Array:
    bits = a.dtype.itemsize * 8
    value = a.view(_UNSIGNED[bits])
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < bits:
            value = value | (value >> value.dtype.type(shift))
    return np.int32(bits) - _counted(value)


def _reversed(a: Array) -> Array:
    unsigned = np.ascontiguousarray(a)[..., None].view(np.uint8)
    return np.packbits(np.unpackbits(unsigned, axis=-1)[..., ::-1], axis=-1).view(a.dtype)[..., 0]


def _conversion(parts: list[str]) -> tuple[Callable[..., Array], tuple[type, ...]] | None:
    """Integers only; ``cvt.sat`` has no part in addresses. No register holds a byte: it is extended to two."""
    to, source = dtype_of(parts[-2]), dtype_of(parts[-1])
    if to is None or source is None or "sat" in parts:
        return None
    held = _wide(to) if np.dtype(to).itemsize == 1 else to
    return lambda a: a.astype(to).astype(held), (source,)


def _simple(function: Callable[..., Array], *kinds: type) -> Any:
    return lambda _parts, kind: (function, (*kinds, kind) if kinds else (kind,))


_BUILDERS: dict[str, Any] = {
    "add": _simple(np.add),
    "sub": _simple(np.subtract),
    "mul": _multiplied,
    "mad": _multiplied_and_added,
    "div": _simple(_divided),
    "rem": _simple(_remainder),
    "min": _simple(np.minimum),
    "max": _simple(np.maximum),
    "neg": _simple(np.negative),
    "abs": _simple(np.abs),
    "not": _simple(np.invert),
    "and": _simple(np.bitwise_and),
    "or": _simple(np.bitwise_or),
    "xor": _simple(np.bitwise_xor),
    "shl": _shifted,
    "shr": _shifted,
    "setp": _compared,
    "selp": lambda _parts, kind: (lambda a, b, p: np.where(p, a, b), (kind, kind, np.bool_)),
    "bfe": lambda _parts, kind: (_field, (kind, np.uint32, np.uint32)),
    "bfi": lambda _parts, kind: (_inserted, (kind, kind, np.uint32, np.uint32)),
    "prmt": lambda _parts, _kind: (_permuted, (np.int32,)),
    "lop3": lambda _parts, kind: (_three_inputs, (kind,)),
    "shf": _funnel,
    "popc": lambda _parts, kind: (_counted, (kind,)),
    "brev": _simple(_reversed),
    "clz": lambda _parts, kind: (_leading_zeros, (kind,)),
}
