"""A forest plot: the ratio and interval of every timed cell on one axis, as positions in percent.

The axis is logarithmic and, further, the inverse hyperbolic sine of the log-ratio: linear where noise lives
(within a few percent) and logarithmic beyond, so that half a percent and three times fit one picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.wording import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINEAR = 0.02  # log-ratio up to which the axis is all but linear
_LEAST = math.log(1.1)  # an axis that shows noise alone would make it look like something
_MOST = math.log(100)
_MARKS = (0.05, 0.1, 0.2, 1 / 3, 0.5, 0.75, 0.9, 0.97, 1.0, 1.03, 1.1, 1.33, 2.0, 3.0, 5.0, 10.0, 20.0)
_APART = 8.0  # percent of the axis between two labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A tick of the axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Whisker:
    """An estimate and its interval; positions are percent of the axis."""

    at: float
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Reaches from ``1 / reach`` to ``reach`` as ratios; ``reach`` is kept as its logarithm."""

    reach: float

    def at(self, ratio: float) -> float:
        """Where a ratio lies; what lies beyond the axis is drawn at its end."""
        log_ratio = math.log(ratio) if ratio > 0 else -math.inf
        inside = max(-self.reach, min(self.reach, log_ratio))
        return round(50 + 50 * math.asinh(inside / _LINEAR) / math.asinh(self.reach / _LINEAR), 2)

    def whisker(self, ratio: float, low: float, high: float) -> Whisker:
        return Whisker(at=self.at(ratio), low=self.at(low), high=self.at(high))

    @property
    def marks(self) -> list[Mark]:
        """Labels from the middle outwards, as many as fit."""
        inside = [mark for mark in _MARKS if abs(math.log(mark)) < self.reach * 0.98]
        shown: list[Mark] = []
        for ratio in sorted(inside, key=lambda mark: abs(math.log(mark))):
            at = self.at(ratio)
            if all(abs(at - other.at) >= _APART for other in shown) and 3 <= at <= 97:
                shown.append(Mark(at=at, label=_label(ratio)))
        return sorted(shown, key=lambda mark: mark.at)


def axis(ratios: Iterable[float | None]) -> Axis:
    """An axis that holds all of these ratios, and the same on both sides: no direction looks larger."""
    logs = [abs(math.log(ratio)) for ratio in ratios if ratio and math.isfinite(ratio)]
    bounded = [each for each in logs if each <= _MOST]  # an interval without an end says nothing about the scale
    return Axis(reach=max([_LEAST, *bounded]) * 1.08)


def _label(ratio: float) -> str:
    if ratio == 1.0:
        return "equal"
    return f"{TIMES}{ratio:.2g}" if ratio >= 2 or ratio <= 0.5 else f"{(ratio - 1) * 100:+.0f} %"
