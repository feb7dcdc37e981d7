"""Which registers carry a value from one iteration of a loop to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.memory.slices import inputs, roots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.memory.blocks import Block
    from matrix.memory.parsing import Program


def carried(program: Program, blocks: Mapping[int, Block], wanted: set[int], span: tuple[int, int]) -> tuple[str, ...]:
    """Registers that are written inside the loop and read, from its head on, before they are written again."""
    inside = [block for block in blocks.values() if span[0] <= block.start < span[1]]
    reads, writes = {}, {}
    for block in inside:
        reads[block.start], writes[block.start] = _uses(program, block, wanted)
    live: dict[int, set[str]] = {block.start: set(reads[block.start]) for block in inside}
    moved = True
    while moved:
        moved = False
        for block in reversed(inside):
            after = set().union(*(live.get(place, set()) for place in (block.end, block.goes_to) if place is not None))
            found = reads[block.start] | (after - writes[block.start])
            moved = moved or found != live[block.start]
            live[block.start] = found
    written = {
        name
        for block in inside
        for i in program.instructions[block.start : block.end]
        if i.index in wanted
        for name in i.results
    }
    # Names without a "%" belong to one block of inline assembly.
    return tuple(sorted(name for name in live.get(span[0], set()) & written if name[0] == "%"))


def _uses(program: Program, block: Block, wanted: set[int]) -> tuple[set[str], set[str]]:
    """Registers that a block reads before it writes them, and those that it always writes."""
    reads: set[str] = set()
    writes: set[str] = set()
    for instruction in program.instructions[block.start : block.end]:
        names = set(roots(instruction))
        if instruction.index in wanted:
            names.update(inputs(instruction))
        reads |= names - writes
        if instruction.index in wanted and not instruction.guard:
            writes.update(instruction.results)
    return reads, writes
