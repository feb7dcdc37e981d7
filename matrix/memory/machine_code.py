"""What a block's warps execute of the machine code: instructions by pipe, and what spilled registers move.

PTX does not say how many instructions ptxas makes of it. In SASS a loop is what a branch back encloses. How often
each is gone through follows from the anchors (:mod:`matrix.memory.anchors`): their executions are known from the
PTX, so the weights of the loops are the non-negative ones that come nearest to them, with code outside of loops run
once by every warp. Where no weights do, the machine code says nothing (None): code that only some warps run, or that
ptxas made anew.

Which pipe executes what: Nsight Compute's documentation, "Metrics Reference", "Pipelines".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls

from matrix.memory.anchors import of_opcode
from matrix.memory.schedule import clocks, once, slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.operations import Array
    from matrix.memory.schedule import Latencies, Slot

_LINE = re.compile(r"^\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)(.*)$")
_LABEL = re.compile(r"^\s*(\.L\w+):")
_TARGET = re.compile(r"(\.L\w+)")
_WIDTH = re.compile(r"\.(64|128)\b")
_MISFIT = 0.1  # share of all anchors' executions that weights may leave unexplained
# ALU: "most bit manipulation and logic instructions", integers but for multiplications, comparisons and selections.
_ALU = (
    *("ISETP", "FSETP", "LOP3", "PLOP3", "IADD", "IADD3", "VIADD", "SHF", "SEL", "FSEL", "LEA", "PRMT", "SGXT", "IABS"),
    *("FMNMX", "FMNMX3", "IMNMX", "VIMNMX", "HMNMX2", "F2FP", "I2FP", "MOV", "BMSK", "VOTE", "P2R", "R2P", "CS2R"),
)
# FMA: "most FP32 arithmetic", integer multiplications, and 16-bit floats since the A10's generation.
_FMA = (
    *("FMUL", "FFMA", "FADD", "FMUL2", "FFMA2", "FADD2", "FHADD", "FSWZADD", "IMAD", "IMUL", "IDP"),
    *("HADD2", "HMUL2", "HFMA2"),
)
# XU: transcendentals, conversions of types, and counts of bits.
_XU = ("MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV")
_PIPES = {**dict.fromkeys(_ALU, "alu"), **dict.fromkeys(_FMA, "fma"), **dict.fromkeys(_XU, "special")}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWork:
    """A block's, means over the grid: warp instructions in all, on three pipes, and sectors that spills move."""

    instructions: float
    alu: float
    fma: float
    special: float
    local_sectors: float
    warp_clocks: float  # that one warp takes for itself (:mod:`matrix.memory.schedule`); 0 without the code's bytes


def machine_work(
    sass: str, code_bytes: bytes, executions: Mapping[str, float], warps: int, latencies: Latencies
) -> MachineWork | None:
    """``sass`` as :mod:`matrix.code.disassembler` writes it; ``executions`` of anchors by a block of ``warps``."""
    code = _code(sass)
    loops = _loops(code)
    if not code:
        return None
    where = _innermost(len(code), loops)
    weights = _weights([of_opcode(one.opcode) for one in code], where, len(loops), executions, warps)
    if weights is None:
        return None
    often = weights[where]
    opcodes = [one.opcode for one in code]
    pipes = np.array([_PIPES.get(opcode, "") for opcode in opcodes])
    return MachineWork(
        instructions=float(often[[opcode != "NOP" for opcode in opcodes]].sum()),
        alu=float(often[pipes == "alu"].sum()),
        fma=float(often[pipes == "fma"].sum()),
        special=float(often[pipes == "special"].sum()),
        local_sectors=float(often @ np.array([_local_sectors(one) for one in code])),
        warp_clocks=_clocks(opcodes, slots(code_bytes), where, weights / warps, latencies),
    )


def _clocks(
    opcodes: Sequence[str], schedule: Sequence[Slot], where: Array, passes: Array, latencies: Latencies
) -> float:
    """All of a warp's passes through each loop's own code, and through the code outside of loops."""
    if len(schedule) < len(opcodes):
        return 0.0
    parts = [np.flatnonzero(where == number).tolist() for number in range(len(passes))]
    loops = sum(
        clocks(opcodes, schedule, part, latencies) * often for part, often in zip(parts, passes[:-1], strict=False)
    )
    return float(loops + once(opcodes, schedule, parts[-1], latencies))


@dataclass(frozen=True, slots=True)
class _Instruction:
    opcode: str
    modifiers: str
    goes_to: int | None  # of a branch


def _code(sass: str) -> list[_Instruction]:
    """All but what pads it: a branch to itself, and what follows."""
    rows: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(rows)
        elif match := _LINE.match(line):
            rows.append((match[1], match[2], match[3]))
    found = []
    for place, (opcode, modifiers, rest) in enumerate(rows):
        target = _TARGET.search(rest) if opcode == "BRA" else None
        goes_to = labels.get(target[1]) if target else None
        if goes_to == place:
            break
        found.append(_Instruction(opcode, modifiers, goes_to))
    return found


def _loops(code: Sequence[_Instruction]) -> list[tuple[int, int]]:
    """First instruction, and the one behind the last."""
    ends: dict[int, int] = {}
    for place, one in enumerate(code):
        if one.goes_to is not None and one.goes_to < place:
            ends[one.goes_to] = max(place + 1, ends.get(one.goes_to, 0))
    return sorted(ends.items())


def _innermost(count: int, loops: Sequence[tuple[int, int]]) -> Array:
    """The number of each instruction's smallest loop; the number of loops where it is in none."""
    found: Array = np.full(count, len(loops))
    for number in sorted(range(len(loops)), key=lambda i: loops[i][0] - loops[i][1]):
        found[slice(*loops[number])] = number
    return found


def _weights(
    anchors: Sequence[str], where: Array, loops: int, executions: Mapping[str, float], warps: int
) -> Array | None:
    """Executions of each loop's code by a block's warps, and last of the code outside; None where nothing fits."""
    names = sorted({name for name in anchors if executions.get(name)})
    counts: Array = np.zeros((len(names), loops + 1))
    for name, place in zip(anchors, where, strict=True):
        if name in names:
            counts[names.index(name), place] += 1
    wanted: Array = np.array([executions[name] for name in names])
    inside: Array = np.zeros(loops)
    if loops and names:
        inside, _ = nnls(counts[:, :-1], wanted - counts[:, -1] * warps)
    weights: Array = np.append(inside, warps)
    missing = sum(count for name, count in executions.items() if name not in names)
    misfit = float(np.abs(counts @ weights - wanted).sum()) + missing
    return weights if misfit <= _MISFIT * sum(executions.values()) else None


def _local_sectors(one: _Instruction) -> int:
    """Of 32 bytes, one warp's: a register of all lanes lies together."""
    if one.opcode not in ("LDL", "STL"):
        return 0
    width = _WIDTH.search(one.modifiers)
    return int(width[1]) // 8 if width else 4
