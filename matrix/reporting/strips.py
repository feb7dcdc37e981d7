"""The raw samples of a cell's arms side by side on one axis: a histogram of each that counts every sample, as a path of
a small SVG. Few samples that lie far out (a launch that was held up) would leave the others no room: they are told.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.records import Role, RoundRecord
from matrix.reporting.judged_rounds import judged_rounds
from matrix.wording import microseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH, HEIGHT = 1000, 20  # of the drawing; stretched to what the page has
_BINS = 250
_LEAST_HEIGHT = 1.5  # a single sample among thousands can still be seen
_MARGIN = 0.04
_FAR = 0.005  # this share of an arm's samples, on each side, does not widen the axis


@dataclass(frozen=True, slots=True, kw_only=True)
class StripArm:
    """One arm: ``path`` is its histogram, the box its 20th to 80th percentile; positions of 0 to ``WIDTH``. ``beyond``
    says how many samples lie outside of the axis, and how far out.
    """

    role: str
    path: str
    low: float
    high: float
    median: float
    samples: int
    beyond: str

    @property
    def width(self) -> float:
        return round(self.high - self.low, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strips:
    """All arms of a cell, and what the axis reaches from and to."""

    arms: Sequence[StripArm]
    first: str
    last: str


def strips(rounds: Iterable[RoundRecord], *, baseline: str, candidate: str) -> Strips | None:
    """From rounds of both cells. Warm rounds of a cell judged cold are left out, as are other candidates'."""
    samples = {role: sorted(values) for role, values in _by_arm(judged_rounds(rounds, baseline, candidate)).items()}
    if Role.BASELINE not in samples or Role.CANDIDATE not in samples:
        return None
    least = min(_rank(values, _FAR) for values in samples.values())
    most = max(_rank(values, 1 - _FAR) for values in samples.values())
    margin = (most - least) * _MARGIN or least * _MARGIN
    axis = _Axis(first=least - margin, last=most + margin)
    arms = [_arm(role, samples[role], axis) for role in Role if role in samples]
    return Strips(arms=arms, first=microseconds(axis.first), last=microseconds(axis.last))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """From and to, in microseconds."""

    first: float
    last: float

    def at(self, value: float) -> float:
        return round((value - self.first) / (self.last - self.first) * WIDTH, 1)

    def holds(self, value: float) -> bool:
        return self.first <= value <= self.last


def _by_arm(rounds: Iterable[RoundRecord]) -> Mapping[Role, list[float]]:
    found: dict[Role, list[float]] = defaultdict(list)
    for each in rounds:
        found[each.role] += each.samples_us
    return found


def _arm(role: Role, values: Sequence[float], axis: _Axis) -> StripArm:
    return StripArm(
        role=str(role),
        path=_histogram([axis.at(value) for value in values if axis.holds(value)]),
        low=axis.at(_rank(values, 0.2)),
        high=axis.at(_rank(values, 0.8)),
        median=axis.at(_rank(values, 0.5)),
        samples=len(values),
        beyond=_beyond([value for value in values if not axis.holds(value)], axis),
    )


def _histogram(places: Iterable[float]) -> str:
    """A bar for each bin that holds something, the fullest as high as the drawing."""
    width = WIDTH / _BINS
    counts = Counter(min(int(place / width), _BINS - 1) for place in places)
    most = max(counts.values(), default=1)
    tops = {number: HEIGHT - max(_LEAST_HEIGHT, HEIGHT * count / most) for number, count in sorted(counts.items())}
    return "".join(f"M{number * width:g} {HEIGHT}V{top:.3g}h{width:g}V{HEIGHT}z" for number, top in tops.items())


def _beyond(values: Sequence[float], axis: _Axis) -> str:
    below = [value for value in values if value < axis.first]
    above = [value for value in values if value > axis.last]
    told = [f"{len(below):,} below, from {microseconds(min(below))}"] if below else []
    told += [f"{len(above):,} above, up to {microseconds(max(above))}"] if above else []
    return "; ".join(told)


def _rank(values: Sequence[float], share: float) -> float:
    return values[round(share * (len(values) - 1))]
