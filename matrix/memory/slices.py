"""Which instructions decide addresses and control flow: all others are arithmetic on data, and left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.memory.accesses import kind_of

if TYPE_CHECKING:
    from matrix.memory.parsing import Instruction, Program


def needed(program: Program) -> set[int]:
    """Indices of the instructions whose results reach an address, a guard or a branch."""
    writers: dict[str, list[int]] = {}
    for instruction in program.instructions:
        for name in instruction.results:
            writers.setdefault(name, []).append(instruction.index)
    wanted = [name for instruction in program.instructions for name in _roots(instruction)]
    found: set[int] = set()
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        for index in writers.get(name, ()):
            if index not in found:
                found.add(index)
                wanted += _inputs(program.instructions[index])
    return found


def _roots(instruction: Instruction) -> list[str]:
    """The registers that must be known to say what this instruction does to memory or to control."""
    if instruction.op.startswith(("bra", "ret", "exit", "brx")):
        return [instruction.guard] if instruction.guard else []
    access = kind_of(instruction)
    if access is None:
        return []
    operands = [instruction.operands[position] for position in access.positions]
    names = [name for operand in operands for name in _names(operand)]
    return [*names, instruction.guard] if instruction.guard else names


def _inputs(instruction: Instruction) -> list[str]:
    # What a load yields depends on memory alone; its address is asked for as a root.
    if instruction.op.startswith(("ld.", "atom", "mbarrier", "ldmatrix")):
        return [instruction.guard] if instruction.guard else []
    return instruction.sources


def _names(operand: str) -> list[str]:
    return [word for word in operand.strip("[]{}").replace(",", " ").replace("+", " ").replace("{", " ").split() if word[:1] == "%"]
