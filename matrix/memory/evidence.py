"""The way in: PTX and a launch to what the memory system will do with it.

    >>> found = memory_evidence(ptx, arguments, grid=(128, 64), target="sm_90")
    >>> found.shared_wavefronts, found.lines[0]

``arguments`` are dictionaries as the compile stage records them, one for each argument that the compiled
kernel takes: ``{"name": "x", "kind": "tensor", "dtype": "fp16", "shape": [8192, 8192]}``, ``{"name": "n",
"kind": "int", "value": 4096}``, or a ``descriptor`` with ``shape``, ``strides`` and ``block_shape``.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from matrix.code import ptx as ptx_text
from matrix.code.occupancy import UnknownTargetError, target_limits
from matrix.memory import anchors
from matrix.memory.accesses import Kind
from matrix.memory.blocks import prepare
from matrix.memory.cost import Work, busy_us, latency_clocks, multiprocessors, special_interval
from matrix.memory.executed import executed, runs, tcgen05_work
from matrix.memory.figures import instruction_figures
from matrix.memory.latencies import Latencies
from matrix.memory.launch import parameters, sample, spread_sample, tensor_bytes
from matrix.memory.machine import Machine
from matrix.memory.machine_code import machine_work
from matrix.memory.parsing import parse
from matrix.memory.pipe import add_passes, writers_of
from matrix.memory.reuse import L1, reuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.memory.blocks import Prepared
    from matrix.memory.executed import Executed
    from matrix.memory.figures import InstructionFigures
    from matrix.memory.launch import Parameters, Sample
    from matrix.memory.log import Log
    from matrix.memory.reuse import Reuse

WARP = 32
SECTOR_BYTES = 32
_LOADS = {Kind.GLOBAL_LOAD, Kind.ASYNC_COPY, Kind.BULK_LOAD}
_NO_ACCESS = {Kind.SHUFFLE, Kind.WGMMA, Kind.TCGEN05}
_STORES = {Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC, Kind.BULK_STORE}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvidence:
    """A kernel's memory traffic: means a block over the grid, and the launch's ``busy_us`` by resource.

    ``unknown`` is the share of requests (one a warp and instruction) whose addresses or whose execution
    depend on loaded values; unknown addresses are counted in no other figure. ``lines``: the same by source
    line, kind and width.
    """

    requests: float
    unknown: float
    shared_wavefronts: float
    shared_wavefronts_ideal: float
    global_load_sectors: float
    global_store_sectors: float
    fetched_sectors: float  # of those loaded, what L1 lacks and asks L2 for
    global_sectors_ideal: float
    global_bytes_used: float
    bulk_bytes: float
    executed_instructions: float  # of the PTX
    dram_bytes: float  # of the launch, were every byte of its tensors to go over once
    dram_read_bytes: float  # of these, what is read
    lanes_an_address: int
    machine_instructions: float | None = None  # executed of the machine code; None where that is not known
    local_sectors: float | None = None  # that spills load and store; likewise
    warp_clocks: float | None = None  # that one warp takes for itself, at the least; likewise
    busy_us: dict[str, float] = field(default_factory=dict)
    lines: list[dict[str, float | int | str]] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What ptxas made of the PTX.

    ``resident`` blocks of ``shared_bytes`` share an SM and its L1 (:func:`matrix.code.occupancy.occupancy`; 0 where
    it is not known); ``code`` and ``sass``: the machine code, and as :mod:`matrix.code.disassembler` writes it, by
    which instructions count on each pipe, spills by what they move, and waiting by the schedule.
    """

    resident: int = 0
    shared_bytes: int = 0
    sass: str = ""
    code: bytes = b""


def memory_evidence(
    ptx: str,
    arguments: Sequence[Mapping[str, object]],
    grid: Sequence[int],
    target: str,
    *,
    signature: Mapping[str, str] | None = None,
    threads: int = 0,
    compiled: Compiled | None = None,
) -> MemoryEvidence:
    """Evaluate one launch. Raises ``ValueError`` where the text is no kernel or states no block size.

    ``signature`` gives the type of each argument that the compiled kernel takes, in order; without one every
    argument is taken. ``threads`` are a block's, for PTX that does not say. ``compiled`` is what PTX does not show;
    without it an SM holds as many blocks as its threads allow, and instructions are the PTX's.
    """
    compiled = compiled or Compiled()
    found = _evaluated(
        _TARGET.sub("", ptx), _encoded(list(arguments)), (*grid, 1, 1, 1)[:3], _encoded(signature), threads
    )
    cache = _cache(target, found.threads, compiled)
    fetched = found.reuse.fetched(cache)
    bulk = _sum(found.figures, "sectors", {Kind.BULK_LOAD})
    stores = _sum(found.figures, "sectors", _STORES)
    loaded = found.once(bulk) + sum(found.once(count, number) for number, count in fetched.items())
    loaded = min(loaded, found.footprint)
    # L2 adds to what is there: an atomic reads, too.
    read = min(loaded + found.once(_sum(found.figures, "sectors", {Kind.GLOBAL_ATOMIC})), found.footprint)
    latencies = _latencies(target, found, cache, found.in_l2(sum(fetched.values()) + bulk, loaded))
    warps = found.threads // WARP
    machine = machine_work(compiled.sass, compiled.code, found.anchors, warps, latencies) if compiled.sass else None
    work = Work(
        blocks=found.sample.total,
        wavefronts=_sum(found.figures, "wavefronts") + found.threads // WARP,  # one a warp: matrix.memory.pipe
        sectors=sum(fetched.values()) + bulk + stores,
        instructions=machine.instructions if machine else found.done.instructions,
        special=machine.special if machine else found.done.special,
        tensor_flop=found.done.tensor_flop,
        dram_bytes=read + found.once(stores),
        alu=machine.alu if machine else 0.0,
        fma=machine.fma if machine else 0.0,
        local_sectors=machine.local_sectors if machine else 0.0,
        warp_clocks=machine.warp_clocks if machine else 0.0,
        resident=compiled.resident,
        descriptors=found.done.descriptors,
    )
    about = _evidence(found, work, sum(fetched.values()) + bulk)
    return replace(
        about,
        dram_read_bytes=read,
        busy_us=busy_us(work, target),
        lines=[dict(line) for line in found.lines],
        machine_instructions=round(machine.instructions, 1) if machine else None,
        local_sectors=round(machine.local_sectors, 2) if machine else None,
        warp_clocks=round(machine.warp_clocks, 1) if machine else None,
    )


def _latencies(target: str, found: _Evaluated, cache: L1, in_l2: float) -> Latencies:
    waiting, by_load = found.reuse.waiting(cache)
    return Latencies(
        clocks=latency_clocks(target),
        waiting=waiting,
        by_load=[by_load.get(place, waiting) for place in found.loads],
        in_l2=in_l2,
        special_interval=special_interval(target),
    )


def _cache(target: str, threads: int, compiled: Compiled) -> L1:
    """The L1 of one of a target's SMs; of a target without limits, what an H200's is."""
    try:
        limits = target_limits(target)
    except UnknownTargetError:
        limits = target_limits("sm_90")
    held = compiled.resident or max(1, min(limits.warps * WARP // threads, limits.blocks))
    return L1(
        free_bytes=max(0, limits.unified_cache - held * (compiled.shared_bytes + limits.shared_reserved_per_block)),
        resident=held,
        multiprocessors=multiprocessors(target) or multiprocessors("sm_90") or 1,
    )


# A release writes the same text for several targets, and two releases often for one: all but these lines.
_TARGET = re.compile(r"^\.(?:version|target)\b.*$", re.MULTILINE)


def _encoded(value: object) -> str:
    return json.dumps(value, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluated:
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


@functools.lru_cache(maxsize=512)
def _evaluated(ptx: str, encoded: str, grid: tuple[int, int, int], encoded_signature: str, threads: int) -> _Evaluated:
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
    return _Evaluated(
        figures=figures,
        lines=_lines(figures),
        reuse=asked,
        anchors=anchors.executions(program, ran, writers, block // WARP),
        done=executed(ran, program, tcgen05_work(ptx_text.matrix_ops(ptx))),
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


def _evidence(found: _Evaluated, work: Work, fetched: float) -> MemoryEvidence:
    figures = found.figures
    requests = _sum([one for one in figures if one.kind not in _NO_ACCESS], "requests")
    # What every layout takes counts on both sides: shuffles, operands of matrix instructions, a warp's own.
    ideal = work.wavefronts - sum(one.wavefronts - one.wavefronts_ideal for one in figures)
    return MemoryEvidence(
        requests=round(requests, 2),
        unknown=round(_sum(figures, "unknown") / requests, 4) if requests else 0.0,
        shared_wavefronts=round(work.wavefronts, 2),
        shared_wavefronts_ideal=round(ideal, 2),
        global_load_sectors=round(_sum(figures, "sectors", _LOADS), 2),
        global_store_sectors=round(_sum(figures, "sectors", _STORES), 2),
        fetched_sectors=round(fetched, 2),
        global_sectors_ideal=round(_sum(figures, "sectors_ideal"), 2),
        global_bytes_used=round(_sum(figures, "bytes_used"), 2),
        bulk_bytes=round(_sum(figures, "bulk_bytes"), 2),
        executed_instructions=round(found.done.instructions, 1),
        dram_bytes=work.dram_bytes,
        dram_read_bytes=0.0,
        lanes_an_address=max((one.lanes_an_address for one in figures), default=0),
        note=found.note,
    )


def _sum(figures: Iterable[InstructionFigures], name: str, kinds: set[Kind] | None = None) -> float:
    return float(sum(getattr(one, name) for one in figures if kinds is None or one.kind in kinds))


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
