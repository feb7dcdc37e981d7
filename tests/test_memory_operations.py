"""PTX's integer instructions against plain Python integers: PTX ISA, "Integer Arithmetic" to "Logic and Shift"."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from matrix.memory.blocks import constant
from matrix.memory.operations import as_type, operation, stored
from matrix.memory.warps import elected, shuffled

MASK = {16: 0xFFFF, 32: 0xFFFFFFFF, 64: (1 << 64) - 1}


def signed(value: int, bits: int) -> int:
    value &= MASK[bits]
    return value - (1 << bits) if value >> (bits - 1) else value


def field(value: int, start: int, length: int, *, bits: int, sign: bool) -> int:
    start, length = start & 0xFF, length & 0xFF
    found = (value & MASK[bits]) >> start & ((1 << length) - 1)
    return found - (1 << length) if sign and length and found >> (length - 1) & 1 else found


def permuted(a: int, b: int, selector: int) -> int:
    data = (a & MASK[32]).to_bytes(4, "little") + (b & MASK[32]).to_bytes(4, "little")
    out = []
    for i in range(4):
        choice = selector >> 4 * i & 15
        byte = data[choice & 7]
        out.append((0xFF if byte & 0x80 else 0) if choice & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def divided(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def u32(value: int) -> int:
    return value & MASK[32]


Reference = Callable[..., int]
REFERENCES: dict[str, tuple[Reference, str]] = {
    "add.s32": (lambda a, b: a + b, "ii"),
    "sub.s64": (lambda a, b: a - b, "ll"),
    "mul.lo.s32": (lambda a, b: a * b, "ii"),
    "mul.hi.s32": (lambda a, b: a * b >> 32, "ii"),
    "mul.hi.u32": (lambda a, b: u32(a) * u32(b) >> 32, "ii"),
    "mul.hi.s64": (lambda a, b: a * b >> 64, "ll"),
    "mul.hi.u64": (lambda a, b: (a & MASK[64]) * (b & MASK[64]) >> 64, "ll"),
    "mul.wide.s32": (lambda a, b: a * b, "ii"),
    "mul.wide.u32": (lambda a, b: u32(a) * u32(b), "ii"),
    "mad.lo.s32": (lambda a, b, c: a * b + c, "iii"),
    "mad.wide.s32": (lambda a, b, c: a * b + c, "iil"),
    "mul.hi.u16": (lambda a, b: (a & MASK[16]) * (b & MASK[16]) >> 16, "hh"),
    "mul.hi.s16": (lambda a, b: a * b >> 16, "hh"),
    "mul.wide.u16": (lambda a, b: (a & MASK[16]) * (b & MASK[16]), "hh"),
    "add.s16": (lambda a, b: a + b, "hh"),
    "div.s32": (divided, "ij"),
    "rem.s32": (lambda a, b: a - divided(a, b) * b, "ij"),
    "div.u32": (lambda a, b: u32(a) // u32(b), "ij"),
    "min.u32": (lambda a, b: min(u32(a), u32(b)), "ii"),
    "max.s32": (max, "ii"),
    "not.b32": (lambda a: ~a, "i"),
    "xor.b64": (lambda a, b: a ^ b, "ll"),
    "shl.b32": (lambda a, b: a << b if b < 32 else 0, "ic"),
    "shr.u32": (lambda a, b: u32(a) >> b, "ic"),
    "shr.s32": (lambda a, b: a >> b, "ic"),
    "shr.b32": (lambda a, b: u32(a) >> b, "ic"),
    "shl.b64": (lambda a, b: a << b if b < 64 else 0, "lc"),
    "shl.b16": (lambda a, b: a << b if b < 16 else 0, "hc"),
    "shr.s16": (lambda a, b: a >> b, "hc"),
    "shr.u64": (lambda a, b: (a & MASK[64]) >> b, "lc"),
    "abs.s32": (abs, "i"),
    "neg.s64": (lambda a: -a, "l"),
    "bfe.u64": (lambda a, b, c: field(a, b, c, bits=64, sign=False), "ldd"),
    "bfe.u32": (lambda a, b, c: field(a, b, c, bits=32, sign=False), "icc"),
    "bfe.s32": (lambda a, b, c: field(a, b, c, bits=32, sign=True), "idd"),
    "bfi.b32": (
        lambda a, b, c, d: (u32(b) & ~(((1 << d) - 1) << c)) | ((u32(a) & ((1 << d) - 1)) << c),
        "iidd",
    ),
    "prmt.b32": (permuted, "iii"),
    "lop3.b32": (lambda a, b, c, _table: (a & b) | (~a & c), "iiit"),
    "shf.l.wrap.b32": (lambda a, b, c: (u32(b) << 32 | u32(a)) << (c & 31) >> 32, "iic"),
    "shf.r.clamp.b32": (lambda a, b, c: (u32(b) << 32 | u32(a)) >> min(c, 32), "iic"),
    "popc.b32": (lambda a: u32(a).bit_count(), "i"),
    "popc.b64": (lambda a: (a & MASK[64]).bit_count(), "l"),
    "clz.b32": (lambda a: 32 - u32(a).bit_length(), "i"),
    "clz.b64": (lambda a: 64 - (a & MASK[64]).bit_length(), "l"),
    "brev.b32": (lambda a: int(f"{u32(a):032b}"[::-1], 2), "i"),
    "brev.b64": (lambda a: int(f"{a & MASK[64]:064b}"[::-1], 2), "l"),
    "cvt.s64.s32": (lambda a: a, "i"),
    "cvt.u64.u32": (u32, "i"),
    "cvt.u32.u64": (lambda a: a, "l"),
    "cvt.u8.u32": (lambda a: a & 0xFF, "i"),  # no register holds a byte: it is extended
    "cvt.s32.s8": (lambda a: (a & 0xFF) - ((a & 0x80) << 1), "h"),
    "setp.lt.u32": (lambda a, b: u32(a) < u32(b), "ii"),
    "setp.ge.s64": (lambda a, b: a >= b, "ll"),
    "selp.b32": (lambda a, b, p: a if p else b, "iip"),
}
_TRUTH_TABLE = 0xCA  # (a & b) | (~a & c)


def drawn(kind: str, dice: random.Random) -> int:  # noqa: PLR0911 - a table
    match kind:
        case "i":
            return signed(dice.choice([dice.getrandbits(32), dice.getrandbits(6), -1, 0, 1 << 31]), 32)
        case "h":
            return signed(dice.choice([dice.getrandbits(16), -1, 1 << 15]), 16)
        case "j":
            return signed(dice.getrandbits(dice.choice([3, 31])) * dice.choice([-1, 1]) or 1, 32)
        case "l":
            return signed(dice.choice([dice.getrandbits(64), dice.getrandbits(33), -1, 1 << 63]), 64)
        case "c":
            return dice.randrange(40)
        case "d":  # a field inside a word
            return dice.randrange(1, 16)
        case "t":
            return _TRUTH_TABLE
        case _:
            return dice.randrange(2)


@pytest.mark.parametrize("op", REFERENCES)
def test_as_python_computes_it(op: str) -> None:
    reference, kinds = REFERENCES[op]
    found = operation(op)
    assert found is not None
    function, types = found
    dice = random.Random(op)
    for _ in range(200):
        values = [drawn(kind, dice) for kind in kinds]
        registers = [
            constant(v, {"l": np.int64, "p": np.bool_, "h": np.int16}.get(k, np.int32))
            for v, k in zip(values, kinds, strict=True)
        ]
        read = [*types, *(types[-1:] * (len(registers) - len(types)))]
        with np.errstate(all="ignore"):
            result = stored(function(*(as_type(r, t) for r, t in zip(registers, read, strict=False))))
        bits = result.dtype.itemsize * 8
        expected = reference(*values)
        assert int(result.flat[0]) == (expected if bits == 8 else signed(expected, bits)), (op, values)


@pytest.mark.parametrize(
    "op", ["add.f32", "cvt.rn.f32.s32", "fma.rn.f32", "setp.lt.f32", "setp.lt.and.s32", "cvt.sat.s8.s32", "add.sat.s32"]
)
def test_what_is_not_evaluated_is_unknown(op: str) -> None:
    assert operation(op) is None


@pytest.mark.parametrize(
    ("mode", "b", "clamp", "expected"),
    [
        ("bfly", 16, 31, [i ^ 16 for i in range(32)]),
        ("up", 4, 0, [i - 4 if i >= 4 else i for i in range(32)]),
        ("down", 4, 31, [i + 4 if i + 4 < 32 else i for i in range(32)]),
        ("idx", 3, 31, [3] * 32),
        ("idx", 0, 0x181F, [i & 0x18 for i in range(32)]),  # segments of eight lanes
    ],
)
def test_shuffles(mode: str, b: int, clamp: int, expected: list[int]) -> None:
    own = np.arange(32, dtype=np.int32)[None, :]
    found = shuffled(mode, [own, constant(b, np.int32), constant(clamp, np.int32)], 32)
    assert found is not None
    assert found[0].tolist() == expected


def test_one_lane_a_warp_is_elected() -> None:
    active = np.zeros((1, 64), bool)
    active[0, [5, 9]] = True
    assert np.flatnonzero(elected(active, (1, 64))).tolist() == [5]
    assert np.flatnonzero(elected(None, (1, 64))).tolist() == [0, 32]
