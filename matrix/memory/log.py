"""What an evaluation saw: accesses and executed blocks in order, each with how often it stands for itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.memory.accesses import Kind
from matrix.memory.launch import BASE

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from matrix.memory.accesses import Access
    from matrix.memory.operations import Array
    from matrix.memory.parsing import Instruction


_STORES = {Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC, Kind.BULK_STORE}


@dataclass(slots=True)
class Touch:
    """One execution of one memory instruction by all warps of the sampled blocks.

    ``address`` is None where it is unknown; ``active`` is None where every lane takes part. ``second`` is
    the global side of a cp.async, ``extent`` what a bulk copy moves (shared bytes, global sectors, used bytes).
    """

    instruction: Instruction
    access: Access
    address: Array | None
    active: Array | None
    sure: bool
    weight: float | Array = 1.0  # an array has one for each sampled block
    second: Array | None = None
    second_active: Array | None = None
    extent: tuple[float, float, float] | None = None


@dataclass(slots=True)
class Visit:
    """One execution of a basic block; ``warps`` by sampled block."""

    start: int
    warps: Array
    weight: float | Array = 1.0


@dataclass(slots=True)
class Log:
    touches: list[Touch] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    sampled_loops: int = 0
    unknown_branches: int = 0
    blocks_part: bool = False  # a branch depends on the block
    cut: bool = False

    def may_write(self, storages: AbstractSet[int]) -> bool:
        """Whether a store may have gone to one of these, by number; one whose address is unknown may go anywhere."""
        stored = [touch.address for touch in self.touches if touch.access.kind in _STORES]
        return any(address is None or not storages.isdisjoint((address // BASE).flat) for address in stored)

    def mark(self) -> tuple[int, int]:
        return len(self.touches), len(self.visits)

    def repeat(self, since: tuple[int, int], times: Array) -> None:
        """Let everything since a mark stand for ``times`` more of itself; one number, or one a sampled block."""
        factor = 1.0 + times if len(times) > 1 else 1.0 + float(times[0])
        for touch in self.touches[since[0] :]:
            touch.weight = touch.weight * factor
        for visit in self.visits[since[1] :]:
            visit.weight = visit.weight * factor
