"""What a block's warps execute of the machine code: instructions by pipe, and what spilled registers move.

PTX does not say how many instructions ptxas makes of it. In SASS a loop is what a branch back encloses. How often
each is gone through follows from the anchors (:mod:`matrix.memory.anchors`): their executions are known from the
PTX, so the weights of the loops are the non-negative ones that come nearest to them; code outside of loops is run once
by every warp, or where a branch may pass it by as often as its anchors say. Where no weights fit, the machine code says
nothing (None).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.anchors import of_opcode
from matrix.memory.control_flow import certain, natural_loops
from matrix.memory.pipes import Pipe, pipe_of
from matrix.memory.schedule import clocks, once, slots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.latencies import Latencies
    from matrix.memory.operations import Array
    from matrix.memory.schedule import Arrival, Slot

_LINE = re.compile(r"^\s+(@!?\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)(.*)$")
_TARGET = re.compile(r"^\s*(.*?)\s*`?\(?(\.L\w+)")
_ENDS = ("EXIT", "RET", "BPT")
_WIDTH = re.compile(r"\.(64|128)\b")
_MISFIT = 0.1  # share of all anchors' executions that weights may leave unexplained


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
    if not code:
        return None
    loops, where = _loops(code)
    weights = _weights([of_opcode(one.opcode) for one in code], where, loops, executions, warps)
    if weights is None:
        return None
    often = weights[where]
    opcodes = [one.opcode for one in code]
    pipes = np.array([pipe_of(opcode) for opcode in opcodes])
    return MachineWork(
        instructions=float(often[[opcode != "NOP" for opcode in opcodes]].sum()),
        alu=float(often[pipes == Pipe.ALU].sum()),
        fma=float(often[pipes == Pipe.FMA].sum()),
        special=float(often[pipes == Pipe.SPECIAL].sum()),
        local_sectors=float(often @ np.array([_local_sectors(one) for one in code])),
        warp_clocks=_clocks(slots(code_bytes), latencies.arrivals(opcodes), where, weights / warps),
    )


def _clocks(schedule: Sequence[Slot], arrivals: Sequence[Arrival], where: Array, passes: Array) -> float:
    """All of a warp's passes through each loop's own code, and through the code outside of loops."""
    if len(schedule) < len(arrivals):
        return 0.0
    parts = [np.flatnonzero(where == number).tolist() for number in range(len(passes))]
    *loops, aside, straight = zip(parts, passes, strict=True)
    total = sum(clocks(schedule, arrivals, part) * often for part, often in loops)
    return float(total + sum(once(schedule, arrivals, part) * often for part, often in (aside, straight)))


@dataclass(frozen=True, slots=True)
class _Instruction:
    opcode: str
    modifiers: str
    goes_to: int | None  # of a branch
    always: bool  # executed by all lanes


def _code(sass: str) -> list[_Instruction]:
    """All but what pads it: a branch to itself, and what follows."""
    rows: list[tuple[str, str, str, str]] = []
    labels: dict[str, int] = {}
    for line in sass.splitlines():
        if line[:1] == ".":
            labels[line.strip().rstrip(":")] = len(rows)
        elif match := _LINE.match(line):
            rows.append((match[1] or "", match[2], match[3], match[4]))
    found = []
    for place, (guard, opcode, modifiers, rest) in enumerate(rows):
        target = _TARGET.match(rest) if opcode == "BRA" else None
        goes_to = labels.get(target[2]) if target else None
        if goes_to == place and not guard:
            break
        found.append(_Instruction(opcode, modifiers, goes_to, not guard and not (target and target[1])))
    return found


def _loops(code: Sequence[_Instruction]) -> tuple[int, Array]:
    """How many loops there are, and the number of each instruction's smallest.

    Outside of all loops it is their count where a branch may pass the instruction by, and one more where none does.
    """
    starts = {0, *(one.goes_to for one in code if one.goes_to is not None and one.goes_to < len(code))}
    starts |= {place + 1 for place, one in enumerate(code) if one.goes_to is not None or one.opcode in _ENDS}
    blocks = sorted(start for start in starts if start < len(code))
    number = {start: i for i, start in enumerate(blocks)}
    ends = [*blocks[1:], len(code)]
    ways = [_ways(code[end - 1], end, number) for end in ends]
    loops = natural_loops(ways)
    found: Array = np.full(len(code), len(loops))
    for block in certain(ways):
        found[blocks[block] : ends[block]] = len(loops) + 1
    for place in reversed(range(len(loops))):  # the smallest come first, and have the last word
        for block in loops[place]:
            found[blocks[block] : ends[block]] = place
    return len(loops), found


def _ways(last: _Instruction, end: int, number: Mapping[int, int]) -> list[int]:
    """The blocks that a block's last instruction leads to."""
    leaves = last.always and (last.goes_to is not None or last.opcode in _ENDS)
    places = [last.goes_to, None if leaves else end]
    return [number[place] for place in places if place is not None and place in number]


def _weights(
    anchors: Sequence[str], where: Array, loops: int, executions: Mapping[str, float], warps: int
) -> Array | None:
    """Executions by a block's warps of each loop's code, of code passed by, of the rest; None where nothing fits."""
    names = sorted({name for name in anchors if executions.get(name)})
    counts: Array = np.zeros((len(names), loops + 2))
    for name, place in zip(anchors, where, strict=True):
        if name in names:
            counts[names.index(name), place] += 1
    wanted: Array = np.array([executions[name] for name in names])
    inside: Array = np.zeros(loops + 1)
    if names:
        from scipy.optimize import nnls  # noqa: PLC0415 - a third of a start-up, and not every process weighs code

        inside, _ = nnls(counts[:, :-1], wanted - counts[:, -1] * warps)
    if not counts[:, loops].any():  # nothing tells how often
        inside[loops] = warps
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
