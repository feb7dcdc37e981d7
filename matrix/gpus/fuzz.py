"""Fuzzing: points that nobody wrote down, with seeds of their own, and the smallest one that fails.

Pure: which point to try next. What may vary is what the case's own correctness points vary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

# The param that makes a fuzzed point a cell of its own: the seed of its inputs.
FUZZ = "fuzz"


def sizes_of(points: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The whole-number params that vary over the points, each with the largest value seen."""
    names = {name for point in points for name, value in point.items() if type(value) is int}
    found = {}
    for name in sorted(names):
        values = {point[name] for point in points if name in point}
        if len(values) > 1 and min(values) >= 0:
            found[name] = max(values)
    return found


def draw(points: Sequence[Mapping[str, Any]], generator: random.Random) -> dict[str, Any]:
    """A point like one of ``points``, its sizes drawn anew: near powers of two as often as anywhere."""
    point = dict(generator.choice(points))
    for name, largest in sizes_of(points).items():
        if name in point:
            point[name] = _size(largest, generator)
    return {**point, FUZZ: f"{generator.getrandbits(32):08x}"}


def _size(largest: int, generator: random.Random) -> int:
    near = (1 << generator.randint(0, max(largest.bit_length() - 1, 0))) + generator.randint(-1, 1)
    anywhere = generator.randint(1, max(largest, 1))
    return min(max(generator.choice((near, anywhere)), 1), max(largest, 1))


def shrink(point: Mapping[str, Any], sizes: Sequence[str], fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The smallest point found that still fails: each size halved towards what passes, until none gives way."""
    smallest, before = dict(point), None
    while smallest != before:
        before = dict(smallest)
        for name in sizes:
            if name in smallest:
                smallest[name] = _least(int(smallest[name]), lambda size, name=name: fails({**smallest, name: size}))  # type: ignore[misc]
    return smallest


def _least(failing: int, fails: Callable[[int], bool]) -> int:
    """By bisection, a size that fails while the one below passes; 1 at the least."""
    passing = 0
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if fails(middle):
            failing = middle
        else:
            passing = middle
    return failing


def replayed(text: str, points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The fuzzed point behind the params of a cell id; None where it is no fuzzed point.

    Values have the types that the case's own points give them.
    """
    pairs = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    if FUZZ not in pairs:
        return None
    known = {name: value for point in points for name, value in point.items()}
    return {name: _typed(value, known.get(name, "")) for name, value in pairs.items()}


def _typed(text: str, like: object) -> Any:
    if isinstance(like, bool):
        return text == "true"
    return type(like)(text) if isinstance(like, int | float) else text
