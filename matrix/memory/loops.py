"""Long loops by their first, steady and last iterations.

An iteration is steady when every register that it hands on has moved by the same amount over a period (the
period of a software pipeline's buffers). Then all but the last iterations are stepped over at once, and what
was logged in one period stands for all of them. A loop without such a period runs on, up to the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matrix.memory.blocks import Block, Step
    from matrix.memory.operations import Array

    Value = Array | None

# Iterations after which a period is looked for. A pipeline of n buffers needs 2n + 1 or more of them; five
# equal steps tell a straight line from a counter that has not wrapped yet.
_LOOKS = (6, 11, 21)
# Periods at the end that run for real: the tail of a pipeline, masked last tiles.
_TAIL_PERIODS = 2


@dataclass(slots=True)
class History:
    """What a loop's iterations handed on, and where the log stood, at each of its back edges."""

    values: list[tuple[Value, ...]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Jump:
    """``periods`` of ``length`` iterations to step over, and by how much each carried register moves."""

    periods: int
    length: int
    moves: tuple[Value, ...]


def jump(history: History, block: Block, operands: tuple[Value, Value], taken: Array | None) -> Jump | None:
    """How far the loop can be stepped over from here; ``operands`` are its condition's, ``taken`` its lanes."""
    count = len(history.values)
    if count not in _LOOKS or block.condition is None or block.last is None:
        return None
    for length in range(1, (count - 1) // 2 + 1):
        moves = _steady(history.values, length, taken)
        if moves is not None:
            periods = _left(block.condition, block.last.negated, history.values, length, taken) - _TAIL_PERIODS
            return Jump(periods, length, moves) if periods > 0 else None
    return None


def _steady(values: list[tuple[Value, ...]], length: int, taken: Array | None) -> tuple[Value, ...] | None:
    moves = []
    for series in zip(*values, strict=True):
        move = _move(series, length, taken)
        if move is False:
            return None
        moves.append(move)
    return tuple(moves)  # type: ignore[arg-type]  # False was returned above


def _move(series: tuple[Value, ...], length: int, taken: Array | None) -> Value | bool:
    """The constant step of one register over ``length`` iterations; False where there is none."""
    unknown = [value is None for value in series]
    if any(unknown):
        return None if all(unknown) else False
    known = [value for value in series if value is not None]
    if known[0].dtype.kind == "b":
        same = all(_all(one == other, taken) for one, other in zip(known, known[length:], strict=False))
        return None if same else False
    steps = [later - earlier for earlier, later in zip(known, known[length:], strict=False)]
    if all(_all(step == steps[-1], taken) for step in steps[:-1]):
        return steps[-1]
    return False


def _all(condition: Array, taken: Array | None) -> bool:
    return bool(np.all(condition if taken is None else condition | ~taken))


def _left(
    condition: Step, negated: bool, values: list[tuple[Value, ...]], length: int, taken: Array | None
) -> int:
    """Whole periods for which the condition still holds in every lane; the last two values are its operands."""
    (now_a, now_b), (then_a, then_b) = values[-1][-2:], values[-1 - length][-2:]
    if now_a is None or now_b is None or then_a is None or then_b is None:
        return 0
    gap = now_a.astype(np.int64) - now_b.astype(np.int64)
    step = gap - (then_a.astype(np.int64) - then_b.astype(np.int64))
    comparison = condition.instruction.op.split(".")[1]
    comparison = _NEGATED[comparison] if negated else comparison
    if comparison == "ne":
        gap, step = np.where(gap > 0, -gap, gap), np.where(gap > 0, -step, step)
    elif comparison in ("gt", "ge", "hi", "hs"):
        gap, step = -gap, -step
    if comparison in ("le", "ge", "ls", "hs"):
        gap = gap - 1
    if comparison == "eq":
        return 0
    periods = np.where((step > 0) & (gap < 0), (-gap - 1) // np.maximum(step, 1), 0)
    if taken is not None:
        periods = np.where(taken, periods, np.iinfo(np.int64).max)
    return int(periods.min())


_NEGATED = {
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "eq": "ne",
    "ne": "eq",
    "lo": "hs",
    "hs": "lo",
    "ls": "hi",
    "hi": "ls",
}
