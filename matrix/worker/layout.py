"""Layouts: where a block's buffers lie, and the turns that were captured there."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from matrix.worker.places import PAD_BYTES, PADS, Place, pad_bytes, place
from matrix.worker.slab import allocating
from matrix.worker.timing import WARM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matrix.case import Case, Params
    from matrix.worker.graphs import CapturedTurn
    from matrix.worker.slab import Slab
    from matrix.worker.timing import Timer

# What torch's allocator takes beyond what was asked for: segments of 2 and of 20 MB for small tensors.
_SEGMENTS_BYTES = 64 << 20


@dataclass
class Layout:
    """The places of a block, the flush's memory, and what was captured with them."""

    first: int  # the number of the first place: what a layout is known by
    places: list[Place]
    flush: torch.Tensor
    pool: Any = None  # that all of it lies in; None for this worker's own memory
    offsets: tuple[int, ...] = ()  # where in the slab the inputs lie; nowhere, where not all of it lies there
    fresh: bool = True  # until the places were first called
    turns: dict[tuple[str, int, int], CapturedTurn] = field(default_factory=dict)

    def calls(self, cache: str, number: int) -> list[Callable[[], object]]:
        """What to call in turn: all places, or the one whose buffers are what is warm."""
        if cache == WARM:
            return [self.places[number % len(self.places)].call]
        return [each.call for each in self.places]

    def fill(self, masters: Sequence[Any]) -> None:
        """Write the inputs into all places, and wait until they are there."""
        for each in self.places:
            for item, master in zip(each.inputs, masters):
                if isinstance(item, torch.Tensor):
                    item.copy_(master)
        torch.cuda.synchronize()

    def clear(self) -> None:
        """Let go of all that it holds: the pool after what lies in it, or torch ends the process."""
        self.turns.clear()
        self.places.clear()
        self.flush = torch.empty(0, dtype=torch.uint8)
        self.pool = None


def lay_out(
    case: Case, params: Params, masters: Sequence[Any], timer: Timer, first: int, number: int, slab: Slab | None
) -> Layout:
    """Places numbered from ``first`` on, their inputs not filled in.

    In the slab, where there is one: in the half of it that the layout before this one does not use. All workers
    come to the same offsets, since they carve it up alike.
    """
    pool = None
    if slab is not None:
        slab.restart(pad_bytes(first), half=first // number % 2)
        pool = slab.pool()
    with allocating(pool):
        flush = timer.flush_buffer()
        padding = [0 if slab is not None else pad_bytes(first + each) for each in range(number)]
        places = [place(case, params, masters, bytes_, timer.device) for bytes_ in padding]
    layout = Layout(first, places, flush, pool)
    if slab is not None and not slab.overflowed:
        layout.offsets = tuple(slab.offset(item) for each in places for item in each.tensors())
    return layout


def affordable(wanted: int, each_bytes: int, timer: Timer, slab: Slab | None, share: float) -> int:
    """How many places fit into half the slab, or else into this share of the free memory, the first included."""
    if each_bytes <= 0:
        return wanted
    if slab is not None:
        room = slab.size / 2 - timer.flush_bytes - PADS * PAD_BYTES
        return max(1, min(wanted, int(room / (each_bytes + _SEGMENTS_BYTES))))
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(wanted, 1 + int(share * free / each_bytes)))
