"""What passes the pipe of shared memory beside the words that lanes ask for.

Held against ``l1tex__data_pipe_lsu_wavefronts_mem_shared`` on an H200 (docs/memory.md), which counts one wavefront

* for each shuffle, but those that ptxas leaves out: nobody reads them, or they hand on one lane's value of what
  thread and block indices decide (a uniform register's);
* for each warp that issues a shared access with no lane taking part;
* for each ``cp.async``: its bytes arrive by the fill path, which this counter does not see (nor a TMA copy's);
* for each 128 bytes that a ``wgmma`` reads of operands in shared memory, and
* for each warp of the launch, whatever it does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.memory.accesses import SHARED, Kind
from matrix.memory.figures import new_figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.memory.executed import Run
    from matrix.memory.figures import InstructionFigures
    from matrix.memory.parsing import Instruction, Program

_WAVEFRONT_BYTES = 128
_WARPGROUP = 4
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k\d+")
_ROW_BYTES = 32  # one step of depth, of every type: k16 of 16 bits, k8 of tf32, k32 of 8 bits
_FROM_INDICES = ("mov", "add", "sub", "mul", "mad", "and", "or", "xor", "shl", "shr", "shf", "bfe", "lop3", "cvt")


def add_passes(figures: dict[int, InstructionFigures], program: Program, runs: Mapping[int, Run]) -> None:
    """Add to, or make, the figures of every instruction that passes the pipe; ``runs`` are by basic block."""
    writers = writers_of(program)
    for start, run in runs.items():
        for instruction in program.instructions[start : run.end]:
            if not program.unread.issuperset(instruction.results or ("",)):
                _add(figures, instruction, run.warps, writers)


def writers_of(program: Program) -> dict[str, list[Instruction]]:
    """The instructions that write each register."""
    found: dict[str, list[Instruction]] = {}
    for instruction in program.instructions:
        for name in instruction.results:
            found.setdefault(name, []).append(instruction)
    return found


def _add(
    figures: dict[int, InstructionFigures],
    instruction: Instruction,
    warps: float,
    writers: Mapping[str, list[Instruction]],
) -> None:
    access, op = instruction.access, instruction.op
    if access is not None and (access.kind in SHARED or access.kind is Kind.ASYNC_COPY):
        found = figures.setdefault(instruction.index, new_figures(instruction, access.kind, access.width))
        passes = warps if access.kind is Kind.ASYNC_COPY else max(0.0, warps - found.requests)
    elif op.startswith("shfl") and not is_uniform(instruction, writers):
        found = figures.setdefault(instruction.index, new_figures(instruction, Kind.SHUFFLE, 4))
        passes = found.requests = warps
    elif op.startswith("wgmma.mma"):
        found = figures.setdefault(instruction.index, new_figures(instruction, Kind.WGMMA, 0))
        found.requests = warps
        passes = warps / _WARPGROUP * operand_bytes(op, first=not instruction.register_factor) / _WAVEFRONT_BYTES
    else:
        return
    found.wavefronts += passes
    found.wavefronts_ideal += passes


def operand_bytes(op: str, *, first: bool) -> int:
    """What one ``wgmma`` reads of shared memory; ``first``: its first factor is there too."""
    shape = _SHAPE.search(op)
    if shape is None:
        return 0
    rows, columns = (int(size) for size in shape.groups())
    return (rows * first + columns) * _ROW_BYTES


def is_uniform(instruction: Instruction, writers: Mapping[str, list[Instruction]]) -> bool:
    """Whether a shuffle hands every lane one lane's value of something that thread and block indices decide."""
    if ".idx." not in instruction.op or instruction.operands[2][0] == "%":
        return False
    wanted, seen = [instruction.operands[1]], set()
    while wanted:
        name = wanted.pop()
        if name in seen or name.startswith(("%tid", "%ctaid", "%laneid")) or name[0] != "%":
            continue
        seen.add(name)
        if not writers.get(name) or not all(writer.op.startswith(_FROM_INDICES) for writer in writers[name]):
            return False
        wanted += [source for writer in writers[name] for source in writer.sources]
    return True
