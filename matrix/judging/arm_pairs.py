"""Which timed arms belong together: the candidate's, the baseline's of the same rounds, and the control's.

Only arms of one interleaved measurement are ever compared. Where two environments were timed together the
other way round, the same rounds answer: the ratio is turned.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from matrix.records import ArmRecord, Decision, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_TURNED = {str(Decision.SLOWER): str(Decision.FASTER), str(Decision.FASTER): str(Decision.SLOWER)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPair:
    """Two arms of one measurement. ``floor``: what an arm differs from itself by on this GPU (a log-ratio);
    ``launch_floor``: the same of its launches on this host.
    """

    baseline: ArmRecord
    candidate: ArmRecord
    control: ArmRecord | None
    floor: float
    launch_floor: float = 0.0
    noise: NoiseFloor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """What the control arms of a run were off by, as log-ratios: the instrument's own noise.

    ``offsets`` are signed, with the standard ``errors`` of those controls whose error is known.
    """

    cells: int
    median: float
    p95: float
    largest: float
    offsets: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()


class _Measurement(NamedTuple):
    run_id: str
    gpu_uuid: str
    baseline: str
    case: str
    target: str
    params: str


class ArmPairs:
    """The arms of a run or several, by who was timed with whom."""

    def __init__(self, records: Iterable[ArmRecord]) -> None:
        self._arms: dict[_Measurement, dict[tuple[Role, str], ArmRecord]] = defaultdict(dict)
        self._places: dict[tuple[str, str, str, str, str], _Measurement] = {}
        for record in records:
            measurement = _measurement(record)
            self._arms[measurement][record.role, record.environment] = record
            if record.role is Role.CANDIDATE:  # of several measurements of one cell the last one counts
                place = (record.baseline, record.environment, record.case, record.target, record.params)
                self._places[place] = measurement
        # In one order, whoever's records come first: sums of floating-point numbers depend on it.
        ordered = [arm for key in sorted(self._arms) for arm in self._arms[key].values()]
        self.floors = noise_floors(ordered)
        self._launch_floors = _launch_floors(self._arms.values())

    def find(self, baseline: str, candidate: str, *, case: str, target: str, params: str) -> ArmPair | None:
        straight = self._places.get((baseline, candidate, case, target, params))
        if straight is not None:
            return self._pair(straight, candidate, turned=False)
        turned = self._places.get((candidate, baseline, case, target, params))
        return self._pair(turned, baseline, turned=True) if turned is not None else None

    def _pair(self, measurement: _Measurement, candidate: str, *, turned: bool) -> ArmPair | None:
        arms = self._arms[measurement]
        one, other = arms.get((Role.BASELINE, measurement.baseline)), arms[Role.CANDIDATE, candidate]
        if one is None:
            return None
        floor = self.floors.get((measurement.run_id, measurement.gpu_uuid))
        allowed = floor.p95 if floor else 0.0
        launches = self._launch_floors.get((measurement.run_id, measurement.gpu_uuid), 0.0)
        straight = ArmPair(
            baseline=one,
            candidate=other,
            control=arms.get((Role.CONTROL, measurement.baseline)),
            floor=allowed,
            launch_floor=launches,
            noise=floor,
        )
        return replace(straight, baseline=other, candidate=_turned(one, other), control=None) if turned else straight


def noise_floors(records: Iterable[ArmRecord]) -> dict[tuple[str, str], NoiseFloor]:
    """By run and GPU, from the control rows whose figures may be used."""
    found: dict[tuple[str, str], list[tuple[float, float | None]]] = defaultdict(list)
    for record in records:
        if record.role is Role.CONTROL and record.ratio and not record.problems:
            found[record.run_id, record.gpu_uuid].append((math.log(record.ratio), record.standard_error))
    return {key: _with_errors(controls) for key, controls in found.items()}


def _with_errors(controls: Sequence[tuple[float, float | None]]) -> NoiseFloor:
    known = [(offset, error) for offset, error in controls if error is not None]
    return replace(
        _floor([abs(offset) for offset, _ in controls]),
        offsets=tuple(offset for offset, _ in known),
        errors=tuple(error for _, error in known),
    )


def _launch_floors(measurements: Iterable[Mapping[tuple[Role, str], ArmRecord]]) -> dict[tuple[str, str], float]:
    """By run and GPU, the 95th percentile of what the control's launches were off by, as log-ratios."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for arms in measurements:
        times = {arm.role: arm.launch_us for arm in arms.values()}
        one, other = times.get(Role.BASELINE), times.get(Role.CONTROL)
        if one and other:
            arm = next(iter(arms.values()))
            found[arm.run_id, arm.gpu_uuid].append(abs(math.log(other / one)))
    return {key: _floor(values).p95 for key, values in found.items()}


def _floor(values: list[float]) -> NoiseFloor:
    steps = statistics.quantiles(values * 2 if len(values) == 1 else values, n=20, method="inclusive")
    return NoiseFloor(cells=len(values), median=steps[9], p95=steps[18], largest=max(values))


def _measurement(record: ArmRecord) -> _Measurement:
    return _Measurement(record.run_id, record.gpu_uuid, record.baseline, record.case, record.target, record.params)


def _turned(baseline: ArmRecord, candidate: ArmRecord) -> ArmRecord:
    """The baseline's arm as a candidate of what was the candidate."""
    turned: Mapping[str, str] = {
        name: _TURNED.get(getattr(candidate, name), getattr(candidate, name))
        for name in ("decision", "decision_in_time", "decision_in_cycles")
    }
    return replace(
        baseline,
        role=Role.CANDIDATE,
        baseline=candidate.environment,
        ratio=_inverse(candidate.ratio),
        ratio_low=_inverse(candidate.ratio_high),
        ratio_high=_inverse(candidate.ratio_low),
        cycles_ratio=_inverse(candidate.cycles_ratio),
        standard_error=candidate.standard_error,
        cycles_error=candidate.cycles_error,
        looks=candidate.looks,
        alpha=candidate.alpha,
        smallest_detectable=candidate.smallest_detectable,
        **turned,  # type: ignore[arg-type]  # three of its text fields
    )


def _inverse(ratio: float | None) -> float | None:
    return 1 / ratio if ratio else None
