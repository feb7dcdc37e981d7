"""One launch evaluated: all that depends neither on the target's rates nor on what else an SM holds."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrix.code import ptx as ptx_text
from matrix.memory import anchors
from matrix.memory.accesses import Kind
from matrix.memory.blocks import prepare
from matrix.memory.executed import executed, runs, tcgen05_work
from matrix.memory.figures import instruction_figures
from matrix.memory.launch import parameters, sample, spread_sample, tensor_bytes
from matrix.memory.machine import Machine
from matrix.memory.parsing import parse
from matrix.memory.pipe import add_passes, writers_of
from matrix.memory.reuse import reuse
from matrix.memory.sectors import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from matrix.memory.blocks import Prepared
    from matrix.memory.executed import Executed
    from matrix.memory.figures import InstructionFigures
    from matrix.memory.launch import Parameters, Sample
    from matrix.memory.log import Log
    from matrix.memory.reuse import Reuse

WARP = 32

# A release writes the same text for several targets, and two releases often for one: all but these lines.
_TARGET = re.compile(r"^\.(?:version|target)\b.*$", re.MULTILINE)


def _encoded(value: object) -> str:
    return json.dumps(value, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """All of a launch that depends neither on the target nor on what else an SM holds."""

    figures: list[InstructionFigures]
    lines: list[dict[str, float | int | str]]
    reuse: Reuse
    done: Executed
    anchors: Mapping[str, float]
    sample: Sample
    threads: int
    loads: Sequence[int]  # places of the PTX's loads of global memory
    storage_bytes: Mapping[int, int]
    footprint: float  # bytes of all tensors
    note: str

    def once(self, sectors: float, storage: int | None = None) -> float:
        """Bytes over DRAM for so many sectors a block, when each byte of the tensors goes over once."""
        most = self.footprint if storage is None else self.storage_bytes.get(storage, self.footprint)
        return min(sectors * SECTOR_BYTES * self.sample.total, most)

    def in_l2(self, sectors: float, dram_read_bytes: float) -> float:
        """The share of what L1 lacks, so many sectors a block, that was read before: the rest comes from DRAM."""
        asked = sectors * SECTOR_BYTES * self.sample.total
        return max(0.0, 1 - dram_read_bytes / asked) if asked else 0.0

    def sum(self, name: str, kinds: Container[Kind] = frozenset(Kind)) -> float:
        """A figure of all instructions of these kinds, a block."""
        return float(sum(getattr(one, name) for one in self.figures if one.kind in kinds))


def evaluated(
    ptx: str,
    arguments: Sequence[Mapping[str, object]],
    grid: Sequence[int],
    signature: Mapping[str, str] | None,
    threads: int,
) -> Evaluated:
    """Evaluate a launch, or remember it. Raises ``ValueError`` where it cannot be (:mod:`matrix.memory.evidence`)."""
    return remembered(
        _TARGET.sub("", ptx), _encoded(list(arguments)), (*grid, 1, 1, 1)[:3], _encoded(signature), threads
    )


@functools.lru_cache(maxsize=512)
def remembered(ptx: str, encoded: str, grid: tuple[int, int, int], encoded_signature: str, threads: int) -> Evaluated:
    """Takes JSON, so that it can be remembered."""
    arguments, signature = json.loads(encoded), json.loads(encoded_signature)
    program = parse(ptx)
    block = program.threads or threads
    if block < WARP or block % WARP:
        raise ValueError(f"kernel {program.name}: {block} threads a block are no whole warps")
    known = parameters(program, arguments, signature or _signature(arguments))
    with np.errstate(all="ignore"):
        prepared = prepare(program, known.symbols)
        log, blocks = _ran(prepared, known, grid, block)
        if known.drawn and log.may_write(known.drawn.keys()):
            known.drawn.clear()  # what the kernel writes is not what was drawn
            log, blocks = _ran(prepared, known, grid, block)
        by_place = instruction_figures(log, blocks, block)
        asked = reuse(log.touches, by_place, blocks, block)
    ran = runs(log, {start: part.end for start, part in prepared.blocks.items()}, blocks)
    writers = writers_of(program)
    add_passes(by_place, program, ran, writers)
    figures = [by_place[place] for place in sorted(by_place)]
    return Evaluated(
        figures=figures,
        lines=_lines(figures),
        reuse=asked,
        anchors=anchors.executions(program, ran, writers, block // WARP),
        done=executed(ran, program, tcgen05_work(ptx_text.matrix_ops(ptx)) if "tcgen05.mma" in ptx else 0.0),
        sample=blocks,
        threads=block,
        loads=[i.index for i in program.instructions if i.access is not None and i.access.kind is Kind.GLOBAL_LOAD],
        storage_bytes=known.storage_bytes,
        footprint=float(sum(tensor_bytes(one) for one in arguments if one.get("kind") in ("tensor", "descriptor"))),
        note=_note(log),
    )


def _ran(prepared: Prepared, known: Parameters, grid: tuple[int, int, int], threads: int) -> tuple[Log, Sample]:
    """Three blocks, or more where blocks take ways of their own."""
    blocks = sample(grid)
    widens = blocks.total > len(blocks.blocks)
    log = Machine(prepared, known, blocks, grid, threads).run(until_blocks_part=widens)
    if log.blocks_part and widens:
        blocks = spread_sample(grid)
        log = Machine(prepared, known, blocks, grid, threads).run()
    return log, blocks


def _signature(arguments: Sequence[Mapping[str, object]]) -> dict[str, str]:
    kinds = {"tensor": "*", "descriptor": "tensordesc", "int": "i64"}
    return {str(argument["name"]): kinds.get(str(argument.get("kind")), "") for argument in arguments}


_PER_LINE = ("requests", "unknown", "wavefronts", "wavefronts_ideal", "sectors", "sectors_ideal", "bulk_bytes")


def _lines(figures: Iterable[InstructionFigures]) -> list[dict[str, float | int | str]]:
    """Figures by source line, kind and width; the most expensive first."""
    found: dict[tuple[str, int, str, int], dict[str, float]] = {}
    for one in figures:
        row = found.setdefault((one.file, one.line, one.kind, one.width), dict.fromkeys(_PER_LINE, 0.0))
        for name in _PER_LINE:
            row[name] += getattr(one, name)
    rows = sorted(found.items(), key=lambda item: -(item[1]["wavefronts"] + item[1]["sectors"]))
    return [
        {"file": file, "line": line, "kind": str(kind), "width": width, **{k: round(v, 2) for k, v in row.items()}}
        for (file, line, kind, width), row in rows
    ]


def _note(log: Log) -> str:
    notes = ["cut off: figures are of what was evaluated by then"] if log.cut else []
    notes += [f"{log.sampled_loops} loops sampled"] if log.sampled_loops else []
    notes += [f"{log.unknown_branches} branches depend on loaded values"] if log.unknown_branches else []
    return "; ".join(notes)
