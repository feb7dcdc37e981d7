"""The links behind the code: static evidence, hardware counters, the time of the kernel and of the pass."""

from __future__ import annotations

import dataclasses
import operator
from typing import TYPE_CHECKING

from matrix.explaining.counts import counts_of, profiled
from matrix.explaining.links import Link, State, Step
from matrix.explaining.sides import is_pass
from matrix.judging.speed import Speed
from matrix.records import KernelFacts
from matrix.wording import change, listing, number, phrase, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.explaining.sides import Sides

_NAMED = 3


_NOT_STATIC = frozenset(("hazards", "memory_lines", "memory_note", "dtypes"))
_STATIC = tuple(
    field.name
    for field in dataclasses.fields(KernelFacts)
    if not field.name.endswith("_hash") and field.name not in _NOT_STATIC
)
_static_of = operator.attrgetter(*_STATIC)


def effects_of(sides: Sides) -> list[Link]:
    """What followed from the code, in order."""
    return [_static(sides), _counted(sides), *_times(sides)]


def _static(sides: Sides) -> Link:
    if not sides.pairs:
        return Link(step=Step.STATIC, state=State.UNKNOWN)
    moved = dict.fromkeys(text for one, other in sides.pairs for text in _moved_facts(one.facts, other.facts))
    state = State.CHANGED if moved or sides.unmatched else State.SAME
    said = [f"{listing(sides.unmatched, limit=_NAMED)} on one side alone"] if sides.unmatched else []
    return Link(step=Step.STATIC, state=state, note=listing([*said, *moved], limit=_NAMED))


def _moved_facts(before: KernelFacts, after: KernelFacts) -> Iterator[str]:
    for name, old, new in zip(_STATIC, _static_of(before), _static_of(after), strict=True):
        if old == new:
            continue
        if isinstance(old, int | float) and isinstance(new, int | float):
            yield f"{phrase(name)} {number(old)} → {number(new)}"
        else:
            yield f"{phrase(name)} changed"


def _counted(sides: Sides) -> Link:
    found = counts_of(sides)
    moved = [f"{each.name} {change(each.before, each.after)}" for each in found if each.way]
    state = State.UNKNOWN if not found else State.CHANGED if moved else State.SAME
    return Link(step=Step.COUNTERS, state=state, note=", ".join(moved))


_SPEEDS = {
    Speed.SLOWER: State.CHANGED,
    Speed.FASTER: State.CHANGED,
    Speed.EQUIVALENT: State.SAME,
}


def _times(sides: Sides) -> Iterator[Link]:
    """Of one kernel the time of a call; of several what the profiler saw of each, and the call's as the pass's."""
    call = Link(step=Step.KERNEL_TIME, state=State.UNKNOWN)
    if sides.timed is not None and sides.timed.speed:
        state = _SPEEDS.get(Speed(sides.timed.speed), State.UNKNOWN)
        ratio = sides.timed.ratio
        call = dataclasses.replace(call, state=state, note=f"{times(ratio)}" if ratio else "")
    if not is_pass(sides):
        yield call
        return
    yield _kernels_time(sides)
    yield dataclasses.replace(call, step=Step.PASS_TIME)


def _kernels_time(sides: Sides) -> Link:
    found = profiled(sides)
    if found is None:
        return Link(step=Step.KERNEL_TIME, state=State.UNKNOWN)
    state = State.CHANGED if found.way else State.SAME
    return Link(step=Step.KERNEL_TIME, state=state, note=f"{times(found.after / found.before)}, as profiled")
