"""What kind of memory access a PTX instruction is, and which operands must be known to count its cost."""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass

_VECTOR = re.compile(r"\.v(\d)\b")
_BITS = re.compile(r"\.[busf]f?(\d+)(?:x2)?$")
_MATRICES = re.compile(r"\.x(\d)\b")


class Kind(enum.StrEnum):
    """Accesses by the path they take through the memory system."""

    GLOBAL_LOAD = "global_load"
    GLOBAL_STORE = "global_store"
    GLOBAL_ATOMIC = "global_atomic"
    SHARED_LOAD = "shared_load"
    SHARED_STORE = "shared_store"
    SHARED_ATOMIC = "shared_atomic"
    LDMATRIX = "ldmatrix"
    STMATRIX = "stmatrix"
    ASYNC_COPY = "async_copy"  # cp.async: a global load and a shared store
    BULK_LOAD = "bulk_load"  # the copy engine, global to shared
    BULK_STORE = "bulk_store"
    TENSORMAP = "tensormap"  # writes of a tensor map's fields; what they cost is not counted
    LOCAL = "local"
    SHUFFLE = "shuffle"  # no access, but its lanes' values pass the pipe of shared memory
    WGMMA = "wgmma"  # what it reads of shared operands
    TCGEN05 = "tcgen05"  # likewise


SHARED = {Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.SHARED_ATOMIC, Kind.LDMATRIX, Kind.STMATRIX}


@dataclass(frozen=True, slots=True)
class Access:
    """``width``: bytes a lane; ``positions``: the operands that decide what is touched, addresses first."""

    kind: Kind
    width: int
    positions: tuple[int, ...]


@functools.cache
def access_of(op: str, operands: int) -> Access | None:  # noqa: C901, PLR0911 - a table
    """The access of an opcode with so many operands, or None where it touches no memory that is counted."""
    parts = op.split(".")
    match parts[0]:
        case "ld" if "param" not in parts:
            return _plain(parts, op, 1)
        case "st":
            return _plain(parts, op, 0)
        case "atom":
            return _atomic(parts, op, 1)
        case "red":
            return None if "async" in parts else _atomic(parts, op, 0)
        case "ldmatrix":
            return Access(Kind.LDMATRIX, 16 * _matrices(op), (1,))
        case "stmatrix":
            return Access(Kind.STMATRIX, 16 * _matrices(op), (0,))
        case "tensormap":
            return Access(Kind.TENSORMAP, 0, tuple(range(operands)))
        case "cp" if "prefetch" in parts:
            return None  # into L2: who reads it then is counted
        case "cp" if "tensor" in parts:
            load = parts.index("global") > next(i for i, part in enumerate(parts) if part.startswith("shared"))
            return Access(Kind.BULK_LOAD, 0, (1,)) if load else Access(Kind.BULK_STORE, 0, (0,))
        case "cp" if "bulk" in parts:
            return _bulk(parts)
        case "cp" if "async" in parts and "shared" in op and "global" in parts:
            return Access(Kind.ASYNC_COPY, 0, tuple(range(operands)))
    return None


def _plain(parts: list[str], op: str, position: int) -> Access | None:
    load = parts[0] == "ld"
    width = _width(op)
    if any(part.startswith("shared") for part in parts):
        return Access(Kind.SHARED_LOAD if load else Kind.SHARED_STORE, width, (position,))
    if "local" in parts:
        return Access(Kind.LOCAL, width, (position,))
    # A generic access goes where its address points; Triton's go to global memory.
    return Access(Kind.GLOBAL_LOAD if load else Kind.GLOBAL_STORE, width, (position,))


def _atomic(parts: list[str], op: str, position: int) -> Access:
    shared = any(part.startswith("shared") for part in parts)
    return Access(Kind.SHARED_ATOMIC if shared else Kind.GLOBAL_ATOMIC, _width(op), (position,))


def _bulk(parts: list[str]) -> Access | None:
    """Plain bytes: ``cp.async.bulk.shared::cluster.global... [to], [from], size``; waits are no access."""
    if len(parts) < 5 or "global" not in parts:
        return None
    shared = next((i for i, part in enumerate(parts) if part.startswith("shared")), -1)
    load = 0 <= shared < parts.index("global")
    return Access(Kind.BULK_LOAD if load else Kind.BULK_STORE, 0, (0, 1, 2))


def _width(op: str) -> int:
    bits = _BITS.search(op)
    vector = _VECTOR.search(op)
    size = int(bits[1]) // 8 if bits else 4
    size *= 2 if op.endswith("x2") else 1
    return size * (int(vector[1]) if vector else 1)


def _matrices(op: str) -> int:
    match = _MATRICES.search(op)
    return int(match[1]) if match else 1
