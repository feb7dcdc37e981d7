"""Figures of a kernel's memory traffic: per instruction, and per block in sum.

Everything is a mean over the blocks of the grid, weighted as they were sampled, so that a figure times the
number of blocks is the launch's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.accesses import Kind
from matrix.memory.banks import matrix_wavefronts, wavefronts
from matrix.memory.operations import Array
from matrix.memory.sectors import most_on_one_address, sectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.memory.launch import Sample
    from matrix.memory.log import Log, Touch
    from matrix.memory.parsing import Instruction

WARP = 32
# A cp.async of 16 bytes a lane asks for each eight lanes apart, and L1 keeps nothing of it: where two eights copy the
# same, both go to L2 (an H200's counters say so of matmul_int4, docs/memory.md).
_QUARTER, _WIDEST = 8, 16
_ROW_OF_BANKS = 128  # bytes; four sectors
_ALL: Array = np.ones((1, 1), np.bool_)
_SHARED = {Kind.SHARED_LOAD, Kind.SHARED_STORE, Kind.SHARED_ATOMIC}
_MATRICES = {Kind.LDMATRIX, Kind.STMATRIX}
_GLOBAL = {Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC}
_BULK = {Kind.BULK_LOAD, Kind.BULK_STORE}


@dataclass(slots=True, kw_only=True)
class InstructionFigures:
    """One memory instruction, a block. ``requests`` are of warps; ``unknown`` of them have unknown addresses.

    ``bytes_used`` are distinct bytes that lanes ask global memory for; moved are 32 a sector.
    """

    index: int
    op: str
    kind: Kind
    line: int
    file: str
    width: int
    requests: float = 0.0
    unknown: float = 0.0
    wavefronts: float = 0.0
    wavefronts_ideal: float = 0.0
    sectors: float = 0.0
    sectors_ideal: float = 0.0
    bytes_used: float = 0.0
    bulk_bytes: float = 0.0
    lanes_an_address: int = 0


def instruction_figures(log: Log, sample: Sample, threads: int) -> dict[int, InstructionFigures]:
    """Every instruction that touched memory, by its place."""
    counter = _Counter(threads, np.asarray(sample.weights))
    found: dict[int, InstructionFigures] = {}
    for touch in _distinct(log.touches):
        counter.add(touch, _figures_of(found, touch))
    counter.count()
    return found


def _distinct(touches: Iterable[Touch]) -> Iterable[Touch]:
    """Touches that cost the same count once, with their weights summed: most of a loop's iterations do."""
    found: dict[tuple[object, ...], Touch] = {}
    for touch in touches:
        key: tuple[object, ...] = (touch.instruction.index, touch.access.width, touch.sure, touch.extent)
        key += _pattern(touch.address, touch.active) + _pattern(touch.second, touch.second_active)
        known = found.get(key)
        if known is None:
            found[key] = replace(touch)
        else:
            known.weight = known.weight + touch.weight
    return found.values()


def _pattern(address: Array | None, active: Array | None) -> tuple[object, ...]:
    """What wavefronts and sectors depend on: addresses but for a shift by whole rows of banks."""
    lanes = active.tobytes() if active is not None else None
    if address is None:
        return None, lanes
    base = int(address.flat[0])
    return base % _ROW_OF_BANKS, (address - base).tobytes(), lanes


def new_figures(instruction: Instruction, kind: Kind, width: int) -> InstructionFigures:
    file, line = instruction.location
    return InstructionFigures(index=instruction.index, op=instruction.op, kind=kind, line=line, file=file, width=width)


def _figures_of(found: dict[int, InstructionFigures], touch: Touch) -> InstructionFigures:
    instruction = touch.instruction
    figures = found.get(instruction.index)
    if figures is None:
        figures = found[instruction.index] = new_figures(instruction, touch.access.kind, touch.access.width)
    figures.width = max(figures.width, touch.access.width)
    return figures


class _Counter:
    """Gathers requests by what counts them, so that each kind is counted in one sweep."""

    def __init__(self, threads: int, weights: Array) -> None:
        self._threads = threads
        self._weights = weights
        self._shared: dict[int, list[_Rows]] = defaultdict(list)
        self._matrices: dict[int, list[_Rows]] = defaultdict(list)
        self._far: dict[tuple[int, int], list[_Rows]] = defaultdict(list)

    def add(self, touch: Touch, figures: InstructionFigures) -> None:
        rows = self._rows(touch, figures, touch.address, touch.active)
        requests = rows.requests()
        figures.requests += requests
        kind, width = touch.access.kind, touch.access.width
        if kind in _BULK:
            _add_bulk(figures, touch, rows, requests)
            return
        lacks_far = kind is Kind.ASYNC_COPY and touch.second is None
        if touch.address is None or lacks_far or not touch.sure:
            figures.unknown += requests
        if touch.address is None:
            return
        if kind in _MATRICES:
            self._matrices[width // 16].append(rows)
        elif kind in _SHARED:
            self._shared[width].append(rows)
        elif kind in _GLOBAL:
            self._far[width, WARP].append(rows)
        if kind is Kind.ASYNC_COPY and touch.second is not None:
            lanes = _QUARTER if width == _WIDEST else WARP
            self._far[width, lanes].append(self._rows(touch, figures, touch.second, touch.second_active))

    def count(self) -> None:
        for width, batch in self._shared.items():
            _add_wavefronts(batch, *wavefronts(*_stacked(batch), width))
        for matrices, batch in self._matrices.items():
            _add_wavefronts(batch, *matrix_wavefronts(*_stacked(batch), matrices))
        for (width, lanes), batch in self._far.items():
            _add_sectors(batch, width, lanes)

    def _rows(self, touch: Touch, figures: InstructionFigures, address: Array | None, active: Array | None) -> _Rows:
        return _Rows(touch, address, active, self._threads, self._weights, figures)


class _Rows:
    """The lanes of one touch as rows of 32, and how a figure for each row becomes a sum a block, over its repeats."""

    __slots__ = ("active", "address", "blocks", "figures", "touch", "weights")

    def __init__(
        self,
        touch: Touch,
        address: Array | None,
        active: Array | None,
        threads: int,
        weights: Array,
        figures: InstructionFigures,
    ) -> None:
        lanes = _ALL if active is None else active
        self.blocks = max(len(lanes), 1 if address is None else len(address))
        shape = (self.blocks, threads)
        self.touch, self.figures = touch, figures
        self.weights: Array = weights * touch.weight
        self.address = None if address is None else _spread(address, shape)
        self.active = _spread(lanes, shape)

    def requests(self) -> float:
        return self.mean(self.active.any(1))

    def mean(self, by_row: Array) -> float:
        """A figure given a warp, summed over a block's warps and repeats; the mean over the whole grid."""
        if self.blocks == 1:
            return float(by_row.sum() * self.weights.sum())
        return float(by_row.reshape(self.blocks, -1).sum(1) @ self.weights)


def _spread(array: Array, shape: tuple[int, int]) -> Array:
    return (array if array.shape == shape else np.broadcast_to(array, shape)).reshape(-1, WARP)


def _stacked(batch: Sequence[_Rows]) -> tuple[Array, Array]:
    addresses = np.concatenate([rows.address for rows in batch if rows.address is not None])
    return addresses, np.concatenate([rows.active for rows in batch])


def _add_wavefronts(batch: Sequence[_Rows], total: Array, ideal: Array) -> None:
    for rows, (one, best) in zip(batch, _parts(batch, total, ideal), strict=True):
        rows.figures.wavefronts += rows.mean(one)
        rows.figures.wavefronts_ideal += rows.mean(best)


def _add_sectors(batch: Sequence[_Rows], width: int, lanes: int) -> None:
    addresses, active = _stacked(batch)
    parts = _parts(batch, *sectors(addresses, active, width, lanes))
    for rows, (touched, ideal, used) in zip(batch, parts, strict=True):
        figures = rows.figures
        figures.sectors += rows.mean(touched)
        figures.sectors_ideal += rows.mean(ideal)
        figures.bytes_used += rows.mean(used)
        if rows.touch.access.kind is Kind.GLOBAL_ATOMIC and rows.address is not None:
            most = int(most_on_one_address(rows.address, rows.active).max())
            figures.lanes_an_address = max(figures.lanes_an_address, most)


def _parts(batch: Sequence[_Rows], *results: Array) -> Iterable[tuple[Array, ...]]:
    start = 0
    for rows in batch:
        end = start + len(rows.active)
        yield tuple(result[start:end] for result in results)
        start = end


def _add_bulk(figures: InstructionFigures, touch: Touch, rows: _Rows, requests: float) -> None:
    """One thread issues a copy; each lane that does is one."""
    copies = rows.mean(rows.active.sum(1))
    if touch.extent is None or not touch.sure:
        figures.unknown += requests
    if touch.extent is not None:
        shared, touched, used = touch.extent
        figures.bulk_bytes += shared * copies
        figures.sectors += touched * copies
        figures.sectors_ideal += -(-used // 32) * copies
        figures.bytes_used += used * copies
