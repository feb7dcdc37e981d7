"""Which instructions decide addresses and control flow: all others are arithmetic on data, and left out."""

from __future__ import annotations

import bisect
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.memory.parsing import Instruction, Program

    Use = tuple[str, int]  # a register, and the instruction that reads it

_ENDS = ("bra", "ret", "exit", "trap", "brx")


def spans(program: Program) -> list[tuple[int, int]]:
    """The basic blocks, as first instruction and the one after the last."""
    count = len(program.instructions)
    leaders = {0, count, *(place for places in program.labels.values() for place in places)}
    leaders |= {i.index + 1 for i in program.instructions if i.op.startswith(_ENDS)}
    ordered = sorted(leader for leader in leaders if leader <= count)
    return list(itertools.pairwise(ordered))


def needed(program: Program, blocks: Sequence[tuple[int, int]]) -> set[int]:
    """Indices of the instructions whose results reach an address, a guard or a branch."""
    writers: dict[str, list[int]] = {}
    for instruction in program.instructions:
        for name in instruction.results:
            writers.setdefault(name, []).append(instruction.index)
    starts = [start for start, _ in blocks]
    wanted: list[Use] = [(name, i.index) for i in program.instructions for name in roots(i)]
    found: set[int] = set()
    while wanted:
        name, reader = wanted.pop()
        start = starts[bisect.bisect_right(starts, reader) - 1]
        for index in _reaching(program, writers.get(name, ()), start, reader):
            if index not in found:
                found.add(index)
                wanted += [(source, index) for source in inputs(program.instructions[index])]
    return found


def _reaching(program: Program, writers: Sequence[int], start: int, reader: int) -> Iterator[int]:
    """The writers whose value a reader may see: the last one in its own block, or else any.

    Compilers use a register that holds zero for several variables: by name alone each would need the other.
    """
    for index in reversed(writers[: bisect.bisect_left(writers, reader)]):
        if index < start:
            break
        yield index
        if not program.instructions[index].guard:
            return
    yield from writers


def roots(instruction: Instruction) -> list[str]:
    """The registers that must be known to say what this instruction does to memory or to control."""
    access = instruction.access
    if access is None:
        return [instruction.guard] if instruction.guard and instruction.op.startswith(_ENDS) else []
    operands = [instruction.operands[position] for position in access.positions]
    names = [name for operand in operands for name in instruction.registers(operand)]
    return [*names, instruction.guard] if instruction.guard else names


def inputs(instruction: Instruction) -> list[str]:
    # What a load yields depends on memory alone; its address is asked for as a root.
    if instruction.op.startswith(("ld.", "atom", "mbarrier", "ldmatrix")):
        return [instruction.guard] if instruction.guard else []
    return instruction.sources
