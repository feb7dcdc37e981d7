"""What the lanes of a warp know of themselves and of each other: special registers, elections, shuffles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.operations import Array, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.memory.launch import Sample

WARP = 32


def special_registers(sample: Sample, grid: tuple[int, int, int], threads: int) -> dict[str, Array]:
    """Thread and block indices and sizes, by register; arrays are (sampled blocks or 1, threads or 1)."""
    tid: Array = np.arange(threads, dtype=np.int32)[None, :]
    zero: Array = np.zeros((1, 1), np.int32)
    found: dict[str, Array] = {"%tid.x": tid, "%tid.y": zero, "%tid.z": zero, "%laneid": tid % WARP}
    found |= {"%ntid.x": zero + threads, "%ntid.y": zero + 1, "%ntid.z": zero + 1, "%warpid": tid // WARP}
    for axis, name in enumerate("xyz"):
        found[f"%ctaid.{name}"] = np.array([[block[axis]] for block in sample.blocks], np.int32)
        found[f"%nctaid.{name}"] = np.array([[grid[axis]]], np.int32)
    return found


def elected(active: Value, shape: tuple[int, int]) -> Array:
    """One lane a warp: the first active one."""
    if active is None:
        lanes: Array = np.arange(shape[1])[None, :] % WARP
        return lanes == 0
    rows = np.broadcast_to(active, shape).reshape(-1, WARP)
    first: Array = rows & (np.cumsum(rows, axis=1) == 1)
    return first.reshape(shape)


def shuffled(mode: str, operands: Sequence[Value], threads: int) -> Value:
    """``shfl.sync`` of a value, a lane and a clamp: PTX ISA; lanes out of range keep their own value."""
    value, lane, clamp = operands
    if value is None or lane is None or clamp is None:
        return None
    if value.shape[1] == 1:  # all lanes have the same
        return value
    rows = np.broadcast_to(value, (value.shape[0], threads)).reshape(-1, WARP)
    b = np.broadcast_to(lane, (lane.shape[0], threads)).reshape(-1, WARP)
    chosen = _source(mode, b, int(clamp.flat[0]))
    count = max(len(rows), len(chosen))
    chosen, rows = np.broadcast_to(chosen, (count, WARP)), np.broadcast_to(rows, (count, WARP))
    return np.take_along_axis(rows, chosen.astype(np.int64) & (WARP - 1), axis=1).reshape(-1, threads)


def _source(mode: str, b: Array, clamp: int) -> Array:
    """The lane that each lane reads from. Bits 0 to 4 of the clamp bound it, 8 to 12 cut warps into segments."""
    own: Array = np.arange(WARP, dtype=np.int32)[None, :]
    segment, bound = (clamp >> 8) & 31, clamp & 31
    low = own & segment
    last = low | (bound & ~segment & 31)
    match mode:
        case "up":
            source, valid = own - b, own - b >= last
        case "down":
            source, valid = own + b, own + b <= last
        case "bfly":
            source, valid = own ^ b, (own ^ b) <= last
        case _:
            source = low | (b & ~segment & 31)
            valid = source <= last
    return np.where(valid, source, own)
