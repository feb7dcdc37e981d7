"""Instructions that ptxas neither merges nor drops: what ties machine code to the PTX that it came from.

Stores, copies, loads of global memory, shuffles, barriers and matrix instructions are as many in the one as in the
other, but for loops that ptxas unrolls. So how often each kind is executed is known from the PTX, and must come out of
the machine code. Loads of shared memory are none: ptxas also repeats them. Nor are the barriers of a single warp.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from matrix.memory.accesses import Kind
from matrix.memory.pipe import is_uniform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.memory.executed import Run
    from matrix.memory.parsing import Instruction, Program

# By the opcode that ptxas makes of each.
_ACCESSES = {
    Kind.GLOBAL_LOAD: "LDG",
    Kind.GLOBAL_STORE: "STG",
    Kind.SHARED_STORE: "STS",
    Kind.LDMATRIX: "LDSM",
    Kind.STMATRIX: "STSM",
    Kind.ASYNC_COPY: "LDGSTS",
    Kind.GLOBAL_ATOMIC: "RED",
    Kind.SHARED_ATOMIC: "ATOMS",
}
_OTHERS = {"shfl": "SHFL", "bar": "BAR", "barrier": "BAR", "mma": "HMMA", "wgmma": "HGMMA"}
_WRITTEN_ALSO = {
    "LD": "LDG",
    "ST": "STG",
    "ATOM": "RED",
    "ATOMG": "RED",
    "REDG": "RED",
    "IMMA": "HMMA",
    "QMMA": "HMMA",
    "DMMA": "HMMA",
    "QGMMA": "HGMMA",
    "IGMMA": "HGMMA",
}
NAMES = frozenset(_ACCESSES.values()) | frozenset(_OTHERS.values())


def of_opcode(opcode: str) -> str:
    """The anchor that a SASS opcode is; empty if none."""
    name = _WRITTEN_ALSO.get(opcode, opcode)
    return name if name in NAMES else ""


def executions(
    program: Program, runs: Mapping[int, Run], writers: Mapping[str, list[Instruction]], warps: int
) -> dict[str, float]:
    """How often a block's ``warps`` execute each anchor, a mean over the grid; ``writers`` of each register."""
    alone = warps == 1
    found: dict[str, float] = defaultdict(float)
    for start, run in runs.items():
        for instruction in program.instructions[start : run.end]:
            name = _of_instruction(instruction)
            if not name or (alone and name == "BAR") or (name == "SHFL" and _is_dropped(instruction, program, writers)):
                continue
            found[name] += run.warps
    return dict(found)


def _of_instruction(instruction: Instruction) -> str:
    if instruction.access is not None:
        return _ACCESSES.get(instruction.access.kind, "")
    first, _, rest = instruction.op.partition(".")
    if first == "wgmma" and not rest.startswith("mma"):
        return ""
    return _OTHERS.get(first, "")


def _is_dropped(instruction: Instruction, program: Program, writers: Mapping[str, list[Instruction]]) -> bool:
    return program.unread.issuperset(instruction.results) or is_uniform(instruction, writers)
