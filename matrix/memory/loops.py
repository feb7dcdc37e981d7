"""Long loops by their first, steady and last iterations.

An iteration is steady when every register that it hands on has moved by the same amount over a period (the
period of a software pipeline's buffers). Then all but the last iterations are stepped over at once, by each
sampled block as far as it goes, and what was logged in one period stands for all of them. A loop without such a
period runs on, up to the budget.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matrix.memory.operations import Array, Value

# Iterations after which a period is looked for; the first may be unlike all others. A pipeline of n buffers
# needs 2n + 1 more; six equal steps tell a straight line from a counter that has not wrapped yet.
_LOOKS = (8, 12, 22)
_UNLIKE = 1
# Periods at the end that run for real: the tail of a pipeline, masked last tiles.
_TAIL_PERIODS = 2
_FOREVER = 1 << 40


@dataclass(frozen=True, slots=True)
class Exit:
    """A comparison that must keep its ``value`` for the loop to go on. A source is a register or a constant."""

    sources: tuple[Any, ...]
    comparison: str
    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """Instructions ``begin`` to ``end``, the registers that iterations hand on, and what ends it."""

    begin: int
    end: int
    carried: tuple[str, ...]
    exits: tuple[Exit, ...] | None


@dataclass(slots=True)
class History:
    """What a loop's iterations handed on, the operands of its exits, and where the log stood."""

    lanes: Array | None  # that go round; None: all
    values: list[tuple[Value, ...]] = field(default_factory=list)
    operands: list[tuple[tuple[Value, Value], ...]] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)

    def goes_on(self, lanes: Array | None) -> bool:
        """Whether these lanes are the ones so far, or whole blocks have left: then the others' past still holds."""
        if lanes is None or lanes is self.lanes:
            return lanes is self.lanes
        before = np.ones(lanes.shape, np.bool_) if self.lanes is None else self.lanes
        here = lanes.any(1)
        same = bool((lanes == before)[here].all())
        self.lanes = lanes if same else self.lanes
        return same


@dataclass(frozen=True, slots=True)
class Jump:
    """``periods`` of ``length`` iterations to step over, and by how much each carried register moves.

    ``periods`` is a number, or where sampled blocks go unlike ways a column with one for each.
    """

    periods: int | Array
    length: int
    moves: tuple[Value, ...]


def jump(history: History, loop: Loop, lanes: Array | None, before: Jump | None = None) -> Jump | None:
    """How far the loop can be stepped over from here; ``lanes`` are those that go round.

    ``before`` is the same loop's last jump: where one period repeats its moves, it is steady again.
    """
    if not loop.exits:
        return None
    found = _again(history, lanes, before) or _looked(history, lanes)
    if found is None:
        return None
    length, moves = found
    now, then = history.operands[-1], history.operands[-1 - length]
    left = [_left(exit_, now[i], then[i], lanes) for i, exit_ in enumerate(loop.exits)]
    periods = functools.reduce(np.minimum, left) - _TAIL_PERIODS
    periods = np.where((periods > 0) & (periods < _FOREVER - _TAIL_PERIODS), periods, 0)
    if not periods.any():
        return None
    return Jump(int(periods[0]) if (periods == periods[0]).all() else periods[:, None], length, moves)


def _looked(history: History, lanes: Array | None) -> tuple[int, tuple[Value, ...]] | None:
    """The shortest period over all iterations so far, at the times to look for one."""
    if len(history.values) not in _LOOKS:
        return None
    steady = history.values[_UNLIKE:]
    for length in range(1, (len(steady) - 1) // 2 + 1):
        moves = _steady(steady, length, lanes)
        if moves is not None:
            return length, moves
    return None


def _again(history: History, lanes: Array | None, before: Jump | None) -> tuple[int, tuple[Value, ...]] | None:
    if before is None or len(history.values) != _UNLIKE + before.length + 1:
        return None
    moves = _steady(history.values[_UNLIKE:], before.length, lanes)
    if moves is None or not all(_equal(one, other) for one, other in zip(moves, before.moves, strict=True)):
        return None
    return before.length, moves


def _equal(one: Value, other: Value) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _steady(values: list[tuple[Value, ...]], length: int, taken: Array | None) -> tuple[Value, ...] | None:
    moves = []
    for series in zip(*values, strict=True):
        move = _move(series, length, taken)
        if move is False:
            return None
        moves.append(move)
    return tuple(moves)


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


def _left(exit_: Exit, now: tuple[Value, Value], then: tuple[Value, Value], taken: Array | None) -> Array:
    """Whole periods for which a comparison keeps its value in all lanes of a block, or of all blocks.

    ``now`` and ``then``: its operands now and a period ago.
    """
    if now[0] is None or now[1] is None or then[0] is None or then[1] is None:
        return np.zeros(1, np.int64)
    gap = now[0].astype(np.int64) - now[1].astype(np.int64)
    step = gap - (then[0].astype(np.int64) - then[1].astype(np.int64))
    comparison = exit_.comparison if exit_.value else _NEGATED[exit_.comparison]
    if comparison == "eq":
        return np.full(1, 0 if step.any() else _FOREVER)
    if comparison == "ne":
        gap, step = np.where(gap > 0, -gap, gap), np.where(gap > 0, -step, step)
    elif comparison in ("gt", "ge", "hi", "hs"):
        gap, step = -gap, -step
    if comparison in ("le", "ge", "ls", "hs"):
        gap = gap - 1
    periods = np.where(step > 0, np.maximum(-gap - 1, 0) // np.maximum(step, 1), _FOREVER)
    if taken is not None:
        periods = np.where(taken, periods, _FOREVER)
    return periods.min(1)


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
