"""What L1 has to fetch: sectors that a block loads anew, by the tensor that they lie in.

A load hits in L1 where the same block touched the sector so shortly before that it is still there: what all
resident blocks loaded in between, each as much as this one, must fit into what shared memory leaves of L1. What
every block of the grid reads (the weights of a norm) an SM fetches once, if all that a block reads fits.
``cp.async.cg`` and loads that say so pass L1 by. That some blocks read what some others do is left out: whether the
coalescer before L2 has a part in it depends on which blocks run where and when (docs/memory.md).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
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
_PAST_L1 = (".cg", ".cv", ".volatile", "::no_allocate", ".acquire", ".relaxed", ".mmio")
_BLOCK_BITS = 6
_MOST_STORAGES = 255
_NEVER = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class L1:
    """An SM's first cache for one launch: the bytes that shared memory leaves, the blocks that share it, the SMs."""

    free_bytes: float
    resident: int
    multiprocessors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """All sectors that a block asks for, of which an L1 of any size may have some.

    Four arrays of equal length: ``sectors`` a block (a mean over the grid), the ``storage`` that they lie in, by
    number as ``launch.parameters`` places it, the ``distance`` since the same block's last touch in sectors that it
    asked for, and whether all sampled blocks read them, ``by_all``. ``own``: different sectors, of one block.

    Three more, of the executions of load instructions: which ``load``, how ``often``, and the ``worst`` distance among
    the sectors of each.
    """

    blocks: int
    past: Mapping[int, float]
    sectors: Array
    storage: Array
    distance: Array
    by_all: Array
    own: float
    load: Array
    often: Array
    worst: Array

    def _reach(self, cache: L1) -> float:
        """Sectors that a block may ask for between two touches of one, for the second to hit."""
        here = max(1, min(cache.resident, -(-self.blocks // cache.multiprocessors)))
        return cache.free_bytes / SECTOR_BYTES / here

    def waiting(self, cache: L1) -> tuple[float, dict[int, float]]:
        """The share of loads that wait for L2 because L1 lacks one of their sectors: of all, and by instruction."""
        each, which = np.unique(self.load, return_inverse=True)
        waits = np.bincount(which, self.often * (self.worst > self._reach(cache)), len(each))
        often = np.bincount(which, self.often, len(each))
        mean = float(waits.sum() / often.sum()) if often.any() else 0.0
        return mean, dict(zip(each.tolist(), (waits / np.where(often > 0, often, 1.0)).tolist(), strict=True))

    def fetched(self, cache: L1) -> dict[int, float]:
        """Sectors a block that L1 lacks, by storage."""
        reach = self._reach(cache)
        weights = np.where(self.distance <= reach, 0.0, self.sectors)
        if self.own <= reach:
            weights = np.where(self.by_all, weights * min(1.0, cache.multiprocessors / self.blocks), weights)
        found = defaultdict(float, self.past)
        for number, total in enumerate(np.bincount(self.storage, weights)):
            found[number] += float(total)
        return found


def reuse(touches: Iterable[Touch], figures: Mapping[int, InstructionFigures], sample: Sample, threads: int) -> Reuse:
    """What the loads of a launch ask for, in the order of the evaluation."""
    cached: list[Touch] = []
    past: dict[int, int] = {}  # instructions that pass L1 by, with the storage that they read
    for touch in touches:
        if touch.access.kind is Kind.GLOBAL_LOAD and touch.address is not None and _is_cached(touch):
            cached.append(touch)
        elif touch.access.kind in (Kind.GLOBAL_LOAD, Kind.ASYNC_COPY):
            address = touch.second if touch.access.kind is Kind.ASYNC_COPY else touch.address
            if address is not None:
                past.setdefault(touch.instruction.index, int(address.flat[0]) // BASE)
    by_storage: dict[int, float] = defaultdict(float)
    for index, storage in past.items():
        by_storage[storage] += figures[index].sectors
    around = np.array([index for index in past if figures[index].kind is Kind.GLOBAL_LOAD], np.int64)
    often, worst = np.ones(len(around)), np.full(len(around), _NEVER)  # these wait whenever they run
    none: Array = np.zeros(0, np.int64)
    if not cached:
        return Reuse(
            blocks=sample.total,
            past=by_storage,
            sectors=none,
            storage=none,
            distance=none,
            by_all=none > 0,
            own=0.0,
            load=around,
            often=often,
            worst=worst,
        )
    found = _grouped(_stream(cached, threads), sample, by_storage)
    return replace(
        found,
        load=np.append(np.array([touch.instruction.index for touch in cached])[found.load], around),
        often=np.append(found.often, often),
        worst=np.append(found.worst, worst),
    )


def _grouped(stream: _Stream, sample: Sample, past: Mapping[int, float]) -> Reuse:
    key: Array = (stream.sectors << _BLOCK_BITS) | stream.blocks
    order: Array = np.argsort(key, kind="stable")
    ordered = key[order]
    distance: Array = np.full(len(ordered), _NEVER)
    again: Array = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    places = stream.places()[order]
    distance[again] = places[again] - places[again - 1]
    by_all = _read_by_all(ordered, stream.count) & (sample.total > 1)
    weights = stream.weights if stream.count == 1 else stream.weights * np.asarray(sample.weights)[stream.blocks]
    storage = np.clip(stream.sectors[order] // (BASE // SECTOR_BYTES), 0, _MOST_STORAGES)
    worst: Array = np.zeros(int(stream.orders.max()) + 1, np.int64)
    np.maximum.at(worst, stream.orders[order], distance)
    often: Array = np.zeros(len(worst))
    often[stream.orders] = stream.weights  # each load's own
    alike, which = np.unique((distance << 9) | (storage << 1) | by_all, return_inverse=True)
    return Reuse(
        blocks=sample.total,
        past=past,
        sectors=np.bincount(which, weights[order]),
        storage=(alike >> 1) & _MOST_STORAGES,
        distance=alike >> 9,
        by_all=(alike & 1) > 0,
        own=(len(ordered) - len(again)) / stream.count,
        load=np.arange(len(worst)),
        often=often,
        worst=worst,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """Every sector of every request, in order. ``count`` blocks: 1 where all sampled ones have the same addresses."""

    sectors: Array
    weights: Array
    blocks: Array
    orders: Array  # of the load that asked
    count: int

    def places(self) -> Array:
        """How many sectors the same block asked for before each."""
        places: Array = np.arange(len(self.blocks))
        if self.count > 1:
            by_block: Array = np.argsort(self.blocks, kind="stable")
            first: Array = np.searchsorted(self.blocks[by_block], np.arange(self.count))
            places[by_block] = places - first[self.blocks[by_block]]
        return places


def _read_by_all(ordered: Array, count: int) -> Array:
    """Whether all sampled blocks read each sector; keys in order."""
    fresh: Array = np.ones(len(ordered), np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    sectors = ordered >> _BLOCK_BITS
    starts: Array = np.ones(len(ordered), np.bool_)
    starts[1:] = sectors[1:] != sectors[:-1]
    which = np.cumsum(starts) - 1
    by_all: Array = np.bincount(which, fresh) == count
    return by_all[which]


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
        sectors, weights, blocks, orders = sectors[order], weights[order], blocks[order], orders[order]
    return _Stream(sectors=sectors, weights=weights, blocks=blocks, orders=orders, count=count)


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
