"""The way in: PTX and a launch to figures of the kernel's memory traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.blocks import prepare
from matrix.memory.figures import InstructionFigures, instruction_figures
from matrix.memory.launch import parameters, sample
from matrix.memory.machine import Machine
from matrix.memory.parsing import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.launch import Sample
    from matrix.memory.log import Log
    from matrix.memory.parsing import Program

WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluated launch."""

    program: Program
    sample: Sample
    log: Log
    instructions: list[InstructionFigures]


def evaluate(
    ptx: str,
    arguments: Sequence[Mapping[str, object]],
    grid: Sequence[int],
    *,
    signature: Mapping[str, str],
    threads: int = 0,
) -> Evaluation:
    """Run the kernel's integer code. Raises ``ValueError`` where the text is no kernel or states no block size."""
    program = parse(ptx)
    block = program.threads or threads
    if block < WARP or block % WARP:
        raise ValueError(f"kernel {program.name}: {block} threads a block are no whole warps")
    known = parameters(program, arguments, signature)
    blocks = sample(grid)
    x, y, z = (*grid, 1, 1, 1)[:3]
    with np.errstate(all="ignore"):
        prepared = prepare(program, known.symbols)
        log = Machine(prepared, known, blocks, (x, y, z), block).run()
        figures = instruction_figures(log, blocks, block)
    return Evaluation(program=program, sample=blocks, log=log, instructions=figures)
