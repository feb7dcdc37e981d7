"""The way in: PTX and a launch to what the memory system will do with it.

    >>> found = memory_evidence(ptx, arguments, grid=(128, 64), target="sm_90")
    >>> found.shared_wavefronts, found.lines[0]

``arguments`` are dictionaries as the compile stage records them, one for each argument that the compiled
kernel takes: ``{"name": "x", "kind": "tensor", "dtype": "fp16", "shape": [8192, 8192]}``, ``{"name": "n",
"kind": "int", "value": 4096}``, or a ``descriptor`` with ``shape``, ``strides`` and ``block_shape``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.code.occupancy import UnknownTargetError, target_limits
from matrix.memory.accesses import Kind
from matrix.memory.cost import Work, busy_us, latency_clocks, multiprocessors, special_interval
from matrix.memory.evaluation import evaluated
from matrix.memory.latencies import Latencies
from matrix.memory.machine_code import machine_work
from matrix.memory.reuse import L1

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.memory.evaluation import Evaluated
    from matrix.memory.machine_code import MachineWork

WARP = 32
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
    found = evaluated(ptx, arguments, grid, signature, threads)
    cache = _cache(target, found.threads, compiled)
    moved = _moved(found, cache)
    machine = None
    if compiled.sass:
        latencies = _latencies(target, found, cache, moved)
        machine = machine_work(compiled.sass, compiled.code, found.anchors, found.threads // WARP, latencies)
    return _evidence(found, moved, machine, _work(found, moved, machine, compiled.resident), target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """Sectors a block between L2 and SMs, ``fetched`` and ``stored``; bytes of the launch over DRAM, each once.

    ``loaded_bytes`` are of ``read_bytes`` what loads read: L2 adds to what is there, so an atomic reads, too.
    """

    fetched: float
    stored: float
    loaded_bytes: float
    read_bytes: float
    written_bytes: float


def _moved(found: Evaluated, cache: L1) -> _Moved:
    fetched, bulk = found.reuse.fetched(cache), found.sum("sectors", {Kind.BULK_LOAD})
    stored = found.sum("sectors", _STORES)
    loaded = found.once(bulk) + sum(found.once(count, number) for number, count in fetched.items())
    loaded = min(loaded, found.footprint)
    return _Moved(
        fetched=sum(fetched.values()) + bulk,
        stored=stored,
        loaded_bytes=loaded,
        read_bytes=min(loaded + found.once(found.sum("sectors", {Kind.GLOBAL_ATOMIC})), found.footprint),
        written_bytes=found.once(stored),
    )


def _latencies(target: str, found: Evaluated, cache: L1, moved: _Moved) -> Latencies:
    waiting, by_load = found.reuse.waiting(cache)
    return Latencies(
        clocks=latency_clocks(target),
        waiting=waiting,
        by_load=[by_load.get(place, waiting) for place in found.loads],
        in_l2=found.in_l2(moved.fetched, moved.loaded_bytes),
        special_interval=special_interval(target),
    )


def _work(found: Evaluated, moved: _Moved, machine: MachineWork | None, resident: int) -> Work:
    return Work(
        blocks=found.sample.total,
        wavefronts=found.sum("wavefronts") + found.threads // WARP,  # one a warp: matrix.memory.pipe
        sectors=moved.fetched + moved.stored,
        instructions=machine.instructions if machine else found.done.instructions,
        special=machine.special if machine else found.done.special,
        tensor_flop=found.done.tensor_flop,
        dram_bytes=moved.read_bytes + moved.written_bytes,
        alu=machine.alu if machine else 0.0,
        fma=machine.fma if machine else 0.0,
        local_sectors=machine.local_sectors if machine else 0.0,
        warp_clocks=machine.warp_clocks if machine else 0.0,
        resident=resident,
        descriptors=found.done.descriptors,
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


def _evidence(found: Evaluated, moved: _Moved, machine: MachineWork | None, work: Work, target: str) -> MemoryEvidence:
    requests = found.sum("requests", frozenset(Kind) - _NO_ACCESS)
    # What every layout takes counts on both sides: shuffles, operands of matrix instructions, a warp's own.
    ideal = work.wavefronts - sum(one.wavefronts - one.wavefronts_ideal for one in found.figures)
    return MemoryEvidence(
        requests=round(requests, 2),
        unknown=round(found.sum("unknown") / requests, 4) if requests else 0.0,
        shared_wavefronts=round(work.wavefronts, 2),
        shared_wavefronts_ideal=round(ideal, 2),
        global_load_sectors=round(found.sum("sectors", _LOADS), 2),
        global_store_sectors=round(moved.stored, 2),
        fetched_sectors=round(moved.fetched, 2),
        global_sectors_ideal=round(found.sum("sectors_ideal"), 2),
        global_bytes_used=round(found.sum("bytes_used"), 2),
        bulk_bytes=round(found.sum("bulk_bytes"), 2),
        executed_instructions=round(found.done.instructions, 1),
        dram_bytes=work.dram_bytes,
        dram_read_bytes=moved.read_bytes,
        lanes_an_address=max((one.lanes_an_address for one in found.figures), default=0),
        machine_instructions=round(machine.instructions, 1) if machine else None,
        local_sectors=round(machine.local_sectors, 2) if machine else None,
        warp_clocks=round(machine.warp_clocks, 1) if machine else None,
        busy_us=busy_us(work, target),
        lines=[dict(line) for line in found.lines],
        note=found.note,
    )
