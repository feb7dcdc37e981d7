"""What L1 has to fetch: sectors that a block loads anew, by the tensor that they lie in.

A load hits in L1 where the same block touched the sector so shortly before that it is still there: what all
resident blocks loaded in between, each as much as this one, must fit. What every block of the grid reads (the
weights of a norm) an SM fetches once, if all that a block reads fits. ``cp.async.cg`` and loads that say so pass
L1 by. That some blocks read what some others do is left out: whether L1, or the coalescer before L2, has a part in
it depends on which blocks run where and when.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from matrix.memory.accesses import Kind
from matrix.memory.launch import BASE
from matrix.memory.sectors import SECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def fetched(touches: Iterable[Touch], sample: Sample, threads: int) -> dict[int, float]:
    """Sectors a block, a mean over the grid, by number of the tensor's storage as ``launch.parameters`` places it."""
    stream = _stream([touch for touch in touches if touch.access.kind in (Kind.GLOBAL_LOAD, Kind.ASYNC_COPY)], threads)
    if stream is None:
        return {}
    sectors, weights, blocks, cached, count = stream
    weights = weights if count == 1 else weights * np.asarray(sample.weights)[blocks]
    reach = _reach(sample, threads)
    weights = weights * ~_hits(sectors, blocks, cached, reach)
    once_an_sm = (sample.total > 1) & cached & _read_by_all(sectors, blocks, count, reach)
    weights = np.where(once_an_sm, weights * min(1.0, _MULTIPROCESSORS / sample.total), weights)
    found: dict[int, float] = defaultdict(float)
    numbers, places = np.unique(sectors // (BASE // SECTOR_BYTES), return_inverse=True)
    for number, total in zip(numbers, np.bincount(places.ravel(), weights), strict=True):
        found[int(number)] += float(total)
    return found


def _read_by_all(sectors: Array, blocks: Array, count: int, reach: int) -> Array:
    """Whether all ``count`` sampled blocks (1: no address depends on it) read a sector, and L1 holds all they read."""
    seen: Array = np.unique((sectors << _BLOCK_BITS) | blocks) >> _BLOCK_BITS
    if len(seen) > reach * count:
        return np.zeros(len(sectors), np.bool_)
    numbers, readers = np.unique(seen, return_counts=True)
    return np.isin(sectors, numbers[readers == count])


def _reach(sample: Sample, threads: int) -> int:
    """Sectors that a block may load between two touches of one, for the second to hit."""
    here = -(-sample.total // _MULTIPROCESSORS)
    resident = max(1, min(_RESIDENT_THREADS // threads, _RESIDENT_BLOCKS, here))
    return _L1_BYTES // SECTOR_BYTES // resident


def _stream(touches: Sequence[Touch], threads: int) -> tuple[Array, Array, Array, Array, int] | None:
    """Every sector of every request in order: its number, weight, sampled block, and whether L1 may hold it.

    Last the number of blocks: 1 where all sampled ones have the same addresses.
    """
    parts: list[tuple[Array, ...]] = []
    count = max((len(a) for t in touches for a in (_address(t), _active(t)) if a is not None), default=1)
    by_width: dict[int, list[tuple[int, Touch]]] = defaultdict(list)
    for order, touch in enumerate(touches):
        if _address(touch) is not None:
            by_width[touch.access.width].append((order, touch))
    for width, group in by_width.items():
        rows = np.concatenate([_rows(touch, count, threads) for _, touch in group])
        ordered = np.sort(rows, axis=1) // SECTOR_BYTES
        fresh = np.ones(ordered.shape, np.bool_)
        fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        row, column = np.nonzero(fresh & (ordered >= 0))
        which: Array = row // (len(rows) // len(group))
        block: Array = row % (len(rows) // len(group)) // (threads // WARP)
        orders = np.array([order for order, _ in group])[which]
        weights = np.array([touch.weight for _, touch in group])[which] * max(1, width // SECTOR_BYTES)
        cached = np.array([_is_cached(touch) for _, touch in group])[which]
        parts.append((ordered[row, column], weights, block, cached, orders))
    if not parts:
        return None
    sectors, weights, blocks, cached, orders = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(parts) > 1:
        order = np.argsort(orders, kind="stable")
        sectors, weights, blocks, cached = sectors[order], weights[order], blocks[order], cached[order]
    return sectors, weights, blocks, cached, count


def _address(touch: Touch) -> Array | None:
    return touch.second if touch.access.kind is Kind.ASYNC_COPY else touch.address


def _active(touch: Touch) -> Array | None:
    return touch.second_active if touch.access.kind is Kind.ASYNC_COPY else touch.active


def _rows(touch: Touch, count: int, threads: int) -> Array:
    """Addresses of lanes that take part, -1 of others, a row a warp."""
    address, active = _address(touch), _active(touch)
    lanes = address if active is None else np.where(active, address, -1)
    return np.broadcast_to(lanes, (count, threads)).reshape(-1, WARP)


def _is_cached(touch: Touch) -> bool:
    return not any(part in touch.instruction.op for part in _PAST_L1)


def _hits(sectors: Array, blocks: Array, cached: Array, reach: int) -> Array:
    """Whether the same block touched a sector at most ``reach`` sectors before."""
    key: Array = (sectors << _BLOCK_BITS) | blocks
    place: Array = np.arange(len(key))
    if blocks.any():  # count each block's own sectors
        by_block: Array = np.argsort(blocks, kind="stable")
        starts: Array = np.searchsorted(blocks[by_block], np.arange(int(blocks.max()) + 1))
        place[by_block] = np.arange(len(key)) - starts[blocks[by_block]]
    order: Array = np.argsort(key, kind="stable")
    ordered, near = key[order], np.diff(place[order]) <= reach
    again: Array = np.zeros(len(key), np.bool_)
    again[1:] = (ordered[1:] == ordered[:-1]) & near
    hits: Array = np.zeros(len(key), np.bool_)
    hits[order] = again
    return hits & cached
