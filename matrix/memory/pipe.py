"""What passes the pipe of shared memory beside the words that lanes ask for.

Held against ``l1tex__data_pipe_lsu_wavefronts_mem_shared`` on an H200 (docs/memory.md), which counts one wavefront

* for each shuffle, but those that ptxas leaves out: nobody reads them, or they hand on one lane's value of what
  thread and block indices decide (a uniform register's);
* for each warp that issues a shared access with no lane taking part;
* for each ``cp.async``: its bytes arrive by the fill path, which this counter does not see (nor a TMA copy's);
* for each 128 bytes that a ``wgmma`` reads of operands in shared memory, and
* for each warp of the launch, whatever it does.

What a ``tcgen05.mma`` reads is counted as a ``wgmma``'s, by the shape in its instruction descriptor where that is a
constant (PTX ISA, "Instruction descriptor"); no counter has confirmed it.
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


def add_passes(
    figures: dict[int, InstructionFigures],
    program: Program,
    runs: Mapping[int, Run],
    writers: Mapping[str, list[Instruction]],
) -> None:
    """Add to, or make, the figures of every instruction that passes the pipe; ``runs`` are by basic block."""
    for start, run in runs.items():
        for instruction in program.instructions[start : run.end]:
            if not program.unread.issuperset(instruction.results or ("",)):
                _add(figures, instruction, run, writers)


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
    run: Run,
    writers: Mapping[str, list[Instruction]],
) -> None:
    access, op, warps = instruction.access, instruction.op, run.warps
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
    elif op.startswith("tcgen05.mma"):  # one lane of a block issues it
        found = figures.setdefault(instruction.index, new_figures(instruction, Kind.TCGEN05, 0))
        found.requests = run.blocks
        passes = run.blocks * tcgen05_bytes(instruction, writers) / _WAVEFRONT_BYTES
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


def tcgen05_bytes(instruction: Instruction, writers: Mapping[str, list[Instruction]]) -> int:
    """What one ``tcgen05.mma`` reads of one block's shared memory; 0 where its descriptor is no constant.

    Its first factor may lie in tensor memory (in brackets). Of a pair of blocks each holds half of both.
    """
    descriptor = _constant(instruction.operands[3], writers) if len(instruction.operands) > 3 else None
    if descriptor is None:
        return 0
    rows, columns = (descriptor >> 24 & 0x1F) * 16, (descriptor >> 17 & 0x3F) * 8
    in_tensor_memory = instruction.operands[1].startswith("[")
    both = (0 if in_tensor_memory else rows) + columns
    return both * _ROW_BYTES // (2 if "cta_group::2" in instruction.op else 1)


def _constant(operand: str, writers: Mapping[str, list[Instruction]]) -> int | None:
    if operand[:1] == "%":
        found = writers.get(operand, [])
        if len(found) != 1 or not found[0].op.startswith("mov."):
            return None
        operand = found[0].operands[1]
    try:
        return int(operand, 0)
    except ValueError:
        return None


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
