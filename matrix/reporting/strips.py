"""The raw samples of a cell's arms side by side on one axis: every tick a sample, as paths of a small SVG."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.records import Role, RoundRecord
from matrix.wording import microseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

WIDTH = 1000  # of the drawing; stretched to what the page has
_TICKS = 160  # of an arm; more would only blacken it
_MARGIN = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class StripArm:
    """One arm: ``path`` holds its ticks, the box its 20th to 80th percentile; positions of 0 to ``WIDTH``."""

    role: str
    path: str
    low: float
    high: float
    median: float
    samples: int

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
    samples = _by_arm(rounds, baseline, candidate)
    everything = [us for values in samples.values() for us in values]
    if Role.BASELINE not in samples or Role.CANDIDATE not in samples:
        return None
    least, most = min(everything), max(everything)
    margin = (most - least) * _MARGIN or least * _MARGIN

    def at(value: float) -> float:
        return round((value - least + margin) / (most - least + 2 * margin) * WIDTH, 1)

    arms = [_arm(role, sorted(samples[role]), at) for role in Role if role in samples]
    return Strips(arms=arms, first=microseconds(least), last=microseconds(most))


def _by_arm(rounds: Iterable[RoundRecord], baseline: str, candidate: str) -> Mapping[Role, list[float]]:
    """The candidate by its environment; what is no candidate's belongs to the baseline's environment."""
    wanted = {(Role.BASELINE, baseline), (Role.CANDIDATE, candidate), (Role.CONTROL, baseline)}
    mine = [one for one in rounds if (one.role, one.environment) in wanted]
    judged = "cold" if any(one.cache == "cold" for one in mine) else "warm"
    found: dict[Role, list[float]] = defaultdict(list)
    for one in mine:
        if one.cache == judged:
            found[one.role] += one.samples_us
    return {role: values for role, values in found.items() if values}


def _arm(role: Role, values: Sequence[float], at: Callable[[float], float]) -> StripArm:
    shown = _thinned(values)
    return StripArm(
        role=str(role),
        path="".join(f"M{place:g} 3v14" for place in sorted({at(value) for value in shown})),
        low=at(_rank(values, 0.2)),
        high=at(_rank(values, 0.8)),
        median=at(_rank(values, 0.5)),
        samples=len(values),
    )


def _rank(values: Sequence[float], share: float) -> float:
    return values[round(share * (len(values) - 1))]


def _thinned(values: Sequence[float]) -> list[float]:
    """Evenly by rank, both ends among them."""
    if len(values) <= _TICKS:
        return list(values)
    return [_rank(values, place / (_TICKS - 1)) for place in range(_TICKS)]
