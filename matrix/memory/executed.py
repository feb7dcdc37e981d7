"""How often a block's warps execute what: instructions, special functions, matrix work."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from matrix.memory.launch import Sample
    from matrix.memory.log import Log, Visit
    from matrix.memory.operations import Array
    from matrix.memory.parsing import Instruction, Program

_SPECIAL = ("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div.full", "div.approx")
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_TYPES = re.compile(r"\.(e\dm\d|[bt]?f\d+|[su]\d+)\b")
# Against a 16-bit type: how long one multiplication of this type takes on the tensor cores.
_EFFORT = {"e4m3": 0.5, "e5m2": 0.5, "s8": 0.5, "u8": 0.5, "tf32": 2.0, "f64": 16.0}
_WARPGROUP = 4
_MAKES_DESCRIPTOR = "tensormap.cp_fenceproxy"  # a finished map goes from shared to global memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A basic block, up to ``end`` (not included): how many warps and thread blocks run it, means over the grid."""

    end: int
    warps: float
    blocks: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A block's executions, means over the grid: warp instructions, of them special functions, 16-bit FLOP.

    ``descriptors``: tensor maps that the block makes for itself.
    """

    instructions: float
    special: float
    tensor_flop: float
    descriptors: float


def runs(log: Log, ends: Mapping[int, int], sample: Sample) -> dict[int, Run]:
    """Every basic block that ran, by its first instruction; ``ends`` gives the end of each."""
    weights = np.asarray(sample.weights)
    warps: dict[int, Array] = {}
    blocks: dict[int, Array] = {}
    for start, seen, often in _together(log.visits):
        warps[start] = warps.get(start, 0.0) + seen * often
        blocks[start] = blocks.get(start, 0.0) + (seen > 0) * often
    return {
        start: Run(end=ends[start], warps=float(seen @ weights), blocks=float(blocks[start] @ weights))
        for start, seen in warps.items()
    }


def _together(visits: Iterable[Visit]) -> Iterable[tuple[int, Array, float | Array]]:
    """Visits of a block by the same warps, most of them by all, with their weights summed."""
    found: dict[tuple[int, int], tuple[int, Array, float | Array]] = {}
    for visit in visits:
        key = visit.start, id(visit.warps)
        known = found.get(key)
        found[key] = visit.start, visit.warps, visit.weight if known is None else known[2] + visit.weight
    return found.values()


def executed(found: Mapping[int, Run], program: Program, tcgen05_flop: float) -> Executed:
    """``tcgen05_flop`` is the work of one ``tcgen05.mma``."""
    totals = np.zeros(3)
    descriptors = 0.0
    for start, run in found.items():
        count, special, by_warp, by_block = _profile(program.instructions[start : run.end], tcgen05_flop)
        totals += (count * run.warps, special * run.warps, by_warp * run.warps + by_block * run.blocks)
        made = sum(one.op.startswith(_MAKES_DESCRIPTOR) for one in program.instructions[start : run.end])
        descriptors += made * run.blocks
    instructions, specials, flop = (float(total) for total in totals)
    return Executed(instructions=instructions, special=specials, tensor_flop=flop, descriptors=descriptors)


def _profile(instructions: Iterable[Instruction], tcgen05_flop: float) -> tuple[int, int, float, float]:
    """Of one run through a basic block: instructions, special functions, FLOP a warp and FLOP a block."""
    count = special = 0
    by_warp = by_block = 0.0
    for instruction in instructions:
        is_special, flop, is_tcgen05 = _weight(instruction.op)
        count += 1
        special += is_special
        by_warp += flop
        by_block += tcgen05_flop if is_tcgen05 else 0.0
    return count, special, by_warp, by_block


@functools.cache
def _weight(op: str) -> tuple[bool, float, bool]:
    """Whether an opcode is a special function, its FLOP a warp, and whether it is a ``tcgen05.mma``."""
    flop = _flop(op) if op.startswith("mma") else _flop(op) / _WARPGROUP if op.startswith("wgmma.mma_async") else 0.0
    return op.startswith(_SPECIAL), flop, op.startswith("tcgen05.mma")


def _flop(op: str) -> float:
    """Multiplications and additions of one matrix instruction, weighted by its operands' type."""
    shape = _SHAPE.search(op)
    if shape is None:
        return 0.0
    rows, columns, depth = (int(size) for size in shape.groups())
    types = _TYPES.findall(op)
    operand = types[1] if len(types) > 1 else ""
    return 2.0 * rows * columns * depth * _EFFORT.get(operand, 1.0)


def tcgen05_work(names: Iterable[str]) -> float:
    """The mean FLOP of ``tcgen05.mma`` instructions as :func:`matrix.code.ptx.matrix_ops` names them; 0 if unknown."""
    found = [_flop(f".{name.removeprefix('tcgen05.mma.')}") for name in names if name.startswith("tcgen05.mma")]
    return sum(found) / len(found) if found else 0.0
