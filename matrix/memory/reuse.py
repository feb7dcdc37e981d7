"""What L1 has to fetch: sectors that a block loads anew, by the tensor that they lie in.

A load hits in L1 where the same block touched the sector so shortly before that it is still there: what all
resident blocks loaded in between, each as much as this one, must fit. What every block of the grid reads (the
weights of a norm) an SM fetches once, if all that a block reads fits. ``cp.async.cg`` and loads that say so pass
L1 by. That some blocks read what some others do is left out: whether L1, or the coalescer before L2, has a part in
it depends on which blocks run where and when.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.accesses import Kind
from matrix.memory.launch import BASE
from matrix.memory.sectors import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.memory.figures import InstructionFigures
    from matrix.memory.launch import Sample
    from matrix.memory.log import Touch
    from matrix.memory.operations import Array

WARP = 32
# A100 has 192 KiB an SM and GH100 256, of which kernels take some as shared memory; distances rarely come near it.
_L1_BYTES = 192 << 10
_RESIDENT_THREADS, _RESIDENT_BLOCKS = 2048, 32
_MULTIPROCESSORS = 132
_PAST_L1 = (".cg", ".cv", ".volatile", "::no_allocate", ".acquire", ".relaxed", ".mmio")
_BLOCK_BITS = 6
_MOST_STORAGES = 255


def fetched(
    touches: Iterable[Touch], figures: Mapping[int, InstructionFigures], sample: Sample, threads: int
) -> dict[int, float]:
    """Sectors a block, a mean over the grid, by number of the tensor's storage as ``launch.parameters`` places it."""
    found: dict[int, float] = defaultdict(float)
    cached: list[Touch] = []
    past: dict[int, int] = {}  # instructions that pass L1 by, with the storage that they read
    for touch in touches:
        if touch.access.kind is Kind.GLOBAL_LOAD and touch.address is not None and _is_cached(touch):
            cached.append(touch)
        elif touch.access.kind in (Kind.GLOBAL_LOAD, Kind.ASYNC_COPY):
            address = touch.second if touch.access.kind is Kind.ASYNC_COPY else touch.address
            if address is not None:
                past.setdefault(touch.instruction.index, int(address.flat[0]) // BASE)
    for index, storage in past.items():
        found[storage] += figures[index].sectors
    if cached:
        _add_cached(found, _stream(cached, threads), sample, threads)
    return found


def _add_cached(found: dict[int, float], stream: _Stream, sample: Sample, threads: int) -> None:
    reach = _reach(sample, threads)
    key: Array = (stream.sectors << _BLOCK_BITS) | stream.blocks
    order: Array = np.argsort(key, kind="stable")
    hits = _hits(key[order], stream.places()[order], reach)
    weights = stream.weights if stream.count == 1 else stream.weights * np.asarray(sample.weights)[stream.blocks]
    weights = weights[order] * ~hits
    if sample.total > 1:
        once_an_sm = _read_by_all(key[order], stream.count, reach)
        weights = np.where(once_an_sm, weights * min(1.0, _MULTIPROCESSORS / sample.total), weights)
    storages = np.clip(stream.sectors[order] // (BASE // SECTOR_BYTES), 0, _MOST_STORAGES)
    for number, total in enumerate(np.bincount(storages, weights)):
        found[number] += float(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """Every sector of every request, in order. ``count`` blocks: 1 where all sampled ones have the same addresses."""

    sectors: Array
    weights: Array
    blocks: Array
    count: int

    def places(self) -> Array:
        """How many sectors the same block asked for before each."""
        places: Array = np.arange(len(self.blocks))
        if self.count > 1:
            by_block: Array = np.argsort(self.blocks, kind="stable")
            first: Array = np.searchsorted(self.blocks[by_block], np.arange(self.count))
            places[by_block] = places - first[self.blocks[by_block]]
        return places


def _hits(ordered: Array, places: Array, reach: int) -> Array:
    """Whether the same block touched a sector at most ``reach`` sectors before; keys in order."""
    hits: Array = np.zeros(len(ordered), np.bool_)
    hits[1:] = (ordered[1:] == ordered[:-1]) & (np.diff(places) <= reach)
    return hits


def _read_by_all(ordered: Array, count: int, reach: int) -> Array:
    """Whether all sampled blocks read a sector, and L1 holds all that they read."""
    fresh: Array = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    if int(fresh.sum()) > reach * count:
        return np.zeros(len(ordered), np.bool_)
    sectors = ordered >> _BLOCK_BITS
    starts: Array = np.ones(len(ordered), np.bool_)
    starts[1:] = sectors[1:] != sectors[:-1]
    which = np.cumsum(starts) - 1
    by_all: Array = np.bincount(which, fresh) == count
    return by_all[which]


def _reach(sample: Sample, threads: int) -> int:
    """Sectors that a block may load between two touches of one, for the second to hit."""
    here = -(-sample.total // _MULTIPROCESSORS)
    resident = max(1, min(_RESIDENT_THREADS // threads, _RESIDENT_BLOCKS, here))
    return _L1_BYTES // SECTOR_BYTES // resident


def _stream(touches: Sequence[Touch], threads: int) -> _Stream:
    count = max(len(lanes) for touch in touches for lanes in (touch.address, touch.active) if lanes is not None)
    count = max(count, *(np.size(touch.weight) for touch in touches), 1)
    by_width: dict[int, list[tuple[int, Touch]]] = defaultdict(list)
    for order, touch in enumerate(touches):
        by_width[touch.access.width].append((order, touch))
    parts = [_requested(group, count, threads) for group in by_width.values()]
    sectors, weights, blocks, orders = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(parts) > 1:
        order = np.argsort(orders, kind="stable")
        sectors, weights, blocks = sectors[order], weights[order], blocks[order]
    return _Stream(sectors=sectors, weights=weights, blocks=blocks, count=count)


def _requested(group: Sequence[tuple[int, Touch]], count: int, threads: int) -> tuple[Array, Array, Array, Array]:
    """Of touches of one width: each warp's distinct sectors, with weight, sampled block and place of the touch."""
    rows = np.concatenate([_rows(touch, count, threads) for _, touch in group])
    ordered = np.sort(rows, axis=1) // SECTOR_BYTES
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    row, column = np.nonzero(fresh & (ordered >= 0))
    rows_a_touch = len(rows) // len(group)
    which: Array = row // rows_a_touch
    block: Array = row % rows_a_touch // (threads // WARP)
    return (
        ordered[row, column],
        np.array([np.broadcast_to(touch.weight, count) for _, touch in group])[which, block],
        block,
        np.array([order for order, _ in group])[which],
    )


def _rows(touch: Touch, count: int, threads: int) -> Array:
    """Addresses of lanes that take part, -1 of others, a row a warp."""
    lanes = touch.address if touch.active is None else np.where(touch.active, touch.address, -1)
    return np.broadcast_to(lanes, (count, threads)).reshape(-1, WARP)


def _is_cached(touch: Touch) -> bool:
    return not any(part in touch.instruction.op for part in _PAST_L1)
