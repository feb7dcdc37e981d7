"""Units of work, each with one key: a case at one point on one target, in all environments.

A unit is never split, so what is compared was made on one host; and it is recorded once, whoever answers twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.running.plan import GPU_STAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.running.plan import PlannedCell

# Slices a worker at the least, so that those who are done first take more of them, and units in one.
_SLICES_A_WORKER = 4
_MOST_UNITS = 64
_LEAST_UNITS = 4


def unit_of(planned: PlannedCell) -> str:
    """Which unit a cell belongs to. Correctness and timing go together: what is not right is not timed."""
    stage = "gpu" if planned.stage in GPU_STAGES else str(planned.stage)
    return f"{stage} {planned.cell.target} {planned.cell.point}"


def units_of(planned: Iterable[PlannedCell]) -> dict[str, list[PlannedCell]]:
    """The cells of each unit. Units of one stage and target stand together: one kind of worker serves them."""
    found: dict[str, list[PlannedCell]] = {}
    for cell in planned:
        found.setdefault(unit_of(cell), []).append(cell)
    return dict(sorted(found.items(), key=lambda each: each[0].split(" ")[:2]))


def fuzz_unit(target: str, seconds: float) -> str:
    """What a fuzz budget finds on one GPU of the target: the unit of no planned cell, whose point holds no space."""
    return f"gpu {target} fuzz for {seconds:g} s"


def is_fuzz(unit: str) -> bool:
    return unit.count(" ") > 2  # stage, target and point


def on_gpu(unit: str) -> bool:
    return unit.startswith("gpu ")


def target_of(unit: str) -> str:
    return unit.split(" ")[1]


def slices(units: Sequence[str], workers: int) -> list[tuple[str, ...]]:
    """The units cut into slices for so many workers, in order."""
    size = min(_MOST_UNITS, max(_LEAST_UNITS, -(-len(units) // (_SLICES_A_WORKER * max(workers, 1)))))
    return list(batches(units, size))


def batches(units: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    """So many units at a time, in order."""
    return (tuple(units[start : start + size]) for start in range(0, len(units), size))
