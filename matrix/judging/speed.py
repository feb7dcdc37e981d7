"""What a timed cell says about the candidate: time of a call, tuning, host time of a launch. Pure.

Whether the two differ by more than ``d`` was tested with all other cells of the comparison
(:mod:`matrix.judging.family`); ``d`` is the larger of the user's threshold and twice this GPU's noise floor in this
run, the 95th percentile of what the control arms (the baseline against itself) were off by. What it *means* is
decided here:

| speed | seen | verdict | reason code |
| --- | --- | --- | --- |
| slower | the interval lies above ``d``, in cycles too, and it stands among all cells | regressed | ``slower``; \
  ``tuner_slower`` where the baseline's configuration is not |
| faster | likewise below | improved | ``faster``; ``tuner_faster`` |
| equivalent | the interval lies within ``d`` | equal | ``equivalent`` |
| equivalent | that, and apart from 1 | changed | ``slower_within_threshold``, ``faster_within_threshold`` |
| undecided | the interval ends below ``d``: faster or as fast | changed | ``not_slower`` |
| undecided | the interval reaches beyond ``d`` and holds 1 | incomplete | ``too_noisy`` |
| undecided | it holds ``d`` and not 1 | incomplete | ``at_threshold``: it differs; by more than ``d`` or by less? |
| undecided | beyond ``d`` in time, not in cycles | incomplete | ``cycles_disagree`` |
| undecided | beyond ``d``, as some cell among so many may be by chance | incomplete | ``chance`` |
| invalid | a problem in either arm | incomplete | ``invalid`` |
| not_run | the two never ran interleaved | incomplete | ``not_paired`` |
| not_run | a cell that did not run, or failed | by its outcome | the outcome's |

Every row says the smallest slow-down that would have shown.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from matrix.judging.changes import Change, Direction
from matrix.judging.family import METHOD, METHOD_VERSION
from matrix.model import Stage
from matrix.records import Decision, Tuning, Verdict
from matrix.wording import microseconds, percent, times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.judging.arm_pairs import ArmPair
    from matrix.judging.family import Tested
    from matrix.judging.thresholds import Thresholds
    from matrix.records import ArmRecord


class Speed(enum.StrEnum):
    """What is known about the time of a call: the ``speed`` column of a timing row."""

    SLOWER = "slower"
    FASTER = "faster"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    INVALID = "invalid"
    NOT_RUN = "not_run"


class SpeedReason(enum.StrEnum):
    """Reason codes of the timing stage."""

    SLOWER = "slower"
    TUNER_SLOWER = "tuner_slower"
    SLOWER_WITHIN_THRESHOLD = "slower_within_threshold"
    FASTER = "faster"
    TUNER_FASTER = "tuner_faster"
    FASTER_WITHIN_THRESHOLD = "faster_within_threshold"
    EQUIVALENT = "equivalent"
    NOT_SLOWER = "not_slower"
    TOO_NOISY = "too_noisy"
    AT_THRESHOLD = "at_threshold"
    CYCLES_DISAGREE = "cycles_disagree"
    CHANCE = "chance"
    INVALID = "invalid"
    NOT_PAIRED = "not_paired"
    LAUNCH_SLOWER = "launch_slower"
    LAUNCH_FASTER = "launch_faster"
    CONFIGURATION_DRIFT = "configuration_drift"


_TITLES = {
    SpeedReason.SLOWER: "slower",
    SpeedReason.TUNER_SLOWER: "slower, for the tuner chose differently",
    SpeedReason.SLOWER_WITHIN_THRESHOLD: "slower within the threshold",
    SpeedReason.FASTER: "faster",
    SpeedReason.TUNER_FASTER: "faster, for the tuner chose differently",
    SpeedReason.FASTER_WITHIN_THRESHOLD: "faster within the threshold",
    SpeedReason.EQUIVALENT: "as fast as before",
    SpeedReason.NOT_SLOWER: "not slower; whether faster is open",
    SpeedReason.TOO_NOISY: "too noisy to tell whether it is slower",
    SpeedReason.AT_THRESHOLD: "differs by about the threshold",
    SpeedReason.CYCLES_DISAGREE: "time differs, and clock cycles do not",
    SpeedReason.CHANCE: "differs no more than one of so many cells may by chance",
    SpeedReason.NOT_PAIRED: "was not timed beside the baseline",
    SpeedReason.LAUNCH_SLOWER: "slower launches",
    SpeedReason.LAUNCH_FASTER: "faster launches",
    SpeedReason.CONFIGURATION_DRIFT: "the tuner chose differently",
}
_GAP_SEVERITY = 7
_LAUNCH_SEVERITY = 33
# Measured: graver than any risk read off the code, and less grave than whatever fails (60 and more).
_SEVERITIES = ((3.0, 59), (1.5, 58), (1.1, 57), (0.0, 56))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedComparison:
    """The verdict on a timed cell and the changes that it rests on, worst first; ``speed`` is of a call's time."""

    verdict: Verdict
    changes: tuple[Change, ...]
    speed: Speed = Speed.NOT_RUN
    test: Tested | None = None

    def columns(self) -> dict[str, Any]:
        """What a verdict row says beside its verdict."""
        said = {"speed": str(self.speed), "method": METHOD, "method_version": METHOD_VERSION}
        test = self.test
        if test is None:
            return said
        return said | {column: getattr(test, name) for column, name in TEST_COLUMNS.items()}


# Columns of a verdict row by what the test calls them.
TEST_COLUMNS: Mapping[str, str] = {
    "ratio": "ratio",
    "ratio_low": "low",
    "ratio_high": "high",
    "allowed": "allowed",
    "p_value": "p_value",
    "q_value": "q_value",
    "smallest_detectable": "smallest_detectable",
    "parameters": "parameters",
}


def speed_titles() -> dict[str, str]:
    """Reason code to headline. ``invalid`` has the outcome's."""
    return {str(reason): title for reason, title in _TITLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """Two arms of one measurement and what their family's test said; without a test they have a problem."""

    pair: ArmPair
    test: Tested | None


def compare_speed(timed: TimedPair | None, pinned: TimedPair | None, thresholds: Thresholds) -> SpeedComparison:
    """The candidate's arm against the baseline's. ``pinned``: the same point with the baseline's configuration."""
    if timed is None:
        text = "the two were never timed beside each other: run them together"
        return _one(Verdict.INCOMPLETE, _gap(SpeedReason.NOT_PAIRED, text))
    pair, test = timed.pair, timed.test
    if test is None:
        change = _gap(SpeedReason.INVALID, f"no verdict on time: {problems_of(pair)}")
        return replace(_one(Verdict.INCOMPLETE, change), speed=Speed.INVALID)
    in_time = compare_time(test, Medians.of(pair))
    if pair.candidate.tuning is Tuning.RETUNED and pinned is not None and pinned.test is not None:
        in_time = _split(in_time, pinned.test)
    return _combined(in_time, _in_launch(pair, thresholds), _drift(pair))


def threshold(pair: ArmPair, thresholds: Thresholds) -> float:
    """``d``, as a log-ratio."""
    return max(math.log(thresholds.slower_ratio), 2 * pair.floor)


def problems_of(pair: ArmPair) -> str:
    """What makes the figures of a pair unusable."""
    sides = (("baseline", pair.baseline), ("candidate", pair.candidate))
    return "; ".join(f"{side}: {', '.join(arm.problems)}" for side, arm in sides if arm.problems)


class Medians(NamedTuple):
    """Of a call in both arms, and what their ratio is in clock cycles where clocks were read."""

    baseline_us: float
    candidate_us: float
    cycles_ratio: float | None

    @classmethod
    def of(cls, pair: ArmPair) -> Medians:
        return cls(pair.baseline.median_us, pair.candidate.median_us, pair.candidate.cycles_ratio)


class Figures(NamedTuple):
    """Of a timed cell, as its sentence names them: the ratio with its interval, and both medians."""

    ratio: float
    low: float | None
    high: float | None
    baseline_us: float | None
    candidate_us: float | None


def compare_time(test: Tested, medians: Medians) -> SpeedComparison:
    """The time of a call alone: nothing of launches and tuning."""
    reason = _reason(test)
    speed, verdict, direction = _MEANINGS[reason]
    return SpeedComparison(verdict=verdict, changes=(_moved(medians, test, reason, direction),), speed=speed, test=test)


def _reason(test: Tested) -> SpeedReason:
    match test.called:
        case Decision.SLOWER:
            return SpeedReason.SLOWER
        case Decision.FASTER:
            return SpeedReason.FASTER
        case Decision.SAME:
            return _WITHIN[test.differs]
        case Decision.UNDECIDED:
            return _undecided(test)
        case _ as unreachable:
            assert_never(unreachable)


def _undecided(test: Tested) -> SpeedReason:
    if test.high is not None and test.high < test.allowed:
        return SpeedReason.NOT_SLOWER
    if test.beyond is not Decision.UNDECIDED:
        return SpeedReason.CHANCE if test.agreed else SpeedReason.CYCLES_DISAGREE
    return SpeedReason.TOO_NOISY if test.differs is Decision.SAME else SpeedReason.AT_THRESHOLD


_WITHIN = {
    Decision.SLOWER: SpeedReason.SLOWER_WITHIN_THRESHOLD,
    Decision.FASTER: SpeedReason.FASTER_WITHIN_THRESHOLD,
    Decision.SAME: SpeedReason.EQUIVALENT,
}
_MEANINGS = {
    SpeedReason.SLOWER: (Speed.SLOWER, Verdict.REGRESSED, Direction.WORSE),
    SpeedReason.FASTER: (Speed.FASTER, Verdict.IMPROVED, Direction.BETTER),
    SpeedReason.EQUIVALENT: (Speed.EQUIVALENT, Verdict.EQUAL, Direction.NEUTRAL),
    SpeedReason.SLOWER_WITHIN_THRESHOLD: (Speed.EQUIVALENT, Verdict.CHANGED, Direction.WORSE),
    SpeedReason.FASTER_WITHIN_THRESHOLD: (Speed.EQUIVALENT, Verdict.CHANGED, Direction.BETTER),
    SpeedReason.NOT_SLOWER: (Speed.UNDECIDED, Verdict.CHANGED, Direction.NEUTRAL),
    SpeedReason.TOO_NOISY: (Speed.UNDECIDED, Verdict.INCOMPLETE, Direction.NEUTRAL),
    SpeedReason.AT_THRESHOLD: (Speed.UNDECIDED, Verdict.INCOMPLETE, Direction.NEUTRAL),
    SpeedReason.CYCLES_DISAGREE: (Speed.UNDECIDED, Verdict.INCOMPLETE, Direction.NEUTRAL),
    SpeedReason.CHANCE: (Speed.UNDECIDED, Verdict.INCOMPLETE, Direction.NEUTRAL),
}


def _moved(medians: Medians, test: Tested, reason: SpeedReason, direction: Direction) -> Change:
    figures = Figures(test.ratio, test.low, test.high, medians.baseline_us, medians.candidate_us)
    return Change(
        reason_code=reason,
        direction=direction,
        severity=_severity(reason, test.ratio),
        text=sentence(figures) + _beside(medians, test, reason),
        stage=Stage.TIMING,
        baseline_value=medians.baseline_us,
        candidate_value=medians.candidate_us,
    )


def sentence(figures: Figures) -> str:
    """What is said of every timed cell, whatever it means."""
    ratio, low, high, before, after = figures
    return (
        f"time of a call {times(ratio)} ({times(low)} to {times(high)}): {microseconds(before)} → {microseconds(after)}"
    )


def _beside(medians: Medians, test: Tested, reason: SpeedReason) -> str:
    """What else the sentence needs: the threshold, what could have been seen, what speaks against it."""
    say = _ASIDES.get(reason)
    return say(medians, test) if say else ""


def _could(test: Tested) -> str:
    seen = test.smallest_detectable
    return "; too few blocks" if seen is None else f"; a slow-down under {percent(seen)} would not have shown"


def _chance(test: Tested) -> str:
    return f"; of {test.cells} cells one may differ so by chance (q = {test.q_value:.2g})"


_ASIDES: Mapping[SpeedReason, Callable[[Medians, Tested], str]] = {
    SpeedReason.SLOWER_WITHIN_THRESHOLD: lambda _, test: f", within the threshold of {times(test.allowed)}",
    SpeedReason.FASTER_WITHIN_THRESHOLD: lambda _, test: f", within the threshold of {times(1 / test.allowed)}",
    SpeedReason.NOT_SLOWER: lambda _, test: (
        f"; whether faster by more than the threshold of {times(1 / test.allowed)} is open"
    ),
    SpeedReason.TOO_NOISY: lambda _, test: _could(test),
    SpeedReason.AT_THRESHOLD: lambda _, test: f"; whether beyond the threshold of {times(test.allowed)} is open",
    SpeedReason.CYCLES_DISAGREE: lambda medians, _: f"; in clock cycles {times(medians.cycles_ratio)}",
    SpeedReason.CHANCE: lambda _, test: _chance(test),
}


def _severity(reason: SpeedReason, ratio: float) -> int:
    match reason:
        case SpeedReason.SLOWER | SpeedReason.FASTER:
            factor = max(ratio, 1 / ratio)
            return next(severity for least, severity in _SEVERITIES if factor >= least)
        case SpeedReason.TOO_NOISY | SpeedReason.AT_THRESHOLD | SpeedReason.CYCLES_DISAGREE | SpeedReason.CHANCE:
            return _GAP_SEVERITY
        case SpeedReason.EQUIVALENT:
            return 0
        case _:
            return 10


_TUNED = {SpeedReason.SLOWER: SpeedReason.TUNER_SLOWER, SpeedReason.FASTER: SpeedReason.TUNER_FASTER}


def _split(retuned: SpeedComparison, pinned: Tested) -> SpeedComparison:
    """Whose doing: with the baseline's own configuration it is the compiler's, else the tuner's.

    Where the pinned cell is undecided nothing is known about the compiler's share.
    """
    change = retuned.changes[0]
    code = _TUNED.get(SpeedReason(change.reason_code))
    alike = _MEANINGS[_reason(pinned)][0]
    if code is None or alike in (retuned.speed, Speed.UNDECIDED):
        return retuned
    text = f"{change.text}; with the baseline's configuration {times(pinned.ratio)}: the tuner chose differently"
    return replace(retuned, changes=(replace(change, reason_code=code, text=text),))


def _in_launch(pair: ArmPair, thresholds: Thresholds) -> Change | None:
    """Host time of a launch, beyond twice what the controls of this run differ by: on a virtual machine two
    workers of one environment were seen to differ by half.
    """
    controls = [pair.control.launch_us] if pair.control and pair.control.launch_us else []
    one, other = pair.baseline.launch_us, pair.candidate.launch_us
    if not one or not other:
        return None
    direction, code = Direction.WORSE, SpeedReason.LAUNCH_SLOWER
    small, large = max([one, *controls]), other
    if other < one:
        direction, code = Direction.BETTER, SpeedReason.LAUNCH_FASTER
        small, large = other, min([one, *controls])
    if (
        large < max(thresholds.launch_ratio, math.exp(2 * pair.launch_floor)) * small
        or large - small < thresholds.launch_growth_us
    ):
        return None
    return Change(
        reason_code=code,
        direction=direction,
        severity=_LAUNCH_SEVERITY,
        text=f"host time of a launch {microseconds(one)} → {microseconds(other)}",
        stage=Stage.TIMING,
        baseline_value=one,
        candidate_value=other,
    )


def _drift(pair: ArmPair) -> Change | None:
    if pair.candidate.tuning is not Tuning.RETUNED:
        return None
    moved = drift(pair.baseline, pair.candidate)
    if not moved:
        return None
    return Change(
        reason_code=SpeedReason.CONFIGURATION_DRIFT,
        direction=Direction.NEUTRAL,
        severity=1,
        text=f"configuration: {'; '.join(moved)}",
        stage=Stage.TIMING,
    )


def drift(one: ArmRecord, other: ArmRecord) -> list[str]:
    """What the tuner chose otherwise: ``matmul_kernel: BLOCK_M 128 → 64, num_warps 8 → 4``."""
    kernels = {**one.configurations, **other.configurations}
    told = []
    for kernel in kernels:
        before, after = _options(one.configurations.get(kernel)), _options(other.configurations.get(kernel))
        keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
        moved = ", ".join(f"{key} {before.get(key, 'unset')} → {after.get(key, 'unset')}" for key in keys)
        told += [f"{kernel}: {moved}"] if moved else []
    return told


def _options(configuration: object) -> dict[str, object]:
    return configuration if isinstance(configuration, dict) else {}


def _combined(in_time: SpeedComparison, launch: Change | None, tuned: Change | None) -> SpeedComparison:
    """Both figures in one verdict. A launch that got worse decides even where the time is not decided.

    ==========  ============  ============
    time        launch worse  launch better
    ==========  ============  ============
    regressed   regressed     mixed
    improved    mixed         improved
    incomplete  regressed     incomplete
    otherwise   regressed     improved
    ==========  ============  ============
    """
    if launch is tuned is None:
        return in_time
    changes = [*in_time.changes, *filter(None, (launch, tuned))]
    verdict = in_time.verdict
    if launch is not None:
        worse = launch.direction is Direction.WORSE
        against = Verdict.IMPROVED if worse else Verdict.REGRESSED
        if verdict is against:
            verdict = Verdict.MIXED
        elif worse:
            verdict = Verdict.REGRESSED
        elif verdict is not Verdict.INCOMPLETE:
            verdict = Verdict.IMPROVED
        changes.sort(key=lambda change: -change.severity)
    return replace(in_time, verdict=verdict, changes=tuple(changes))


def _gap(reason: SpeedReason, text: str) -> Change:
    return Change(
        reason_code=reason, direction=Direction.NEUTRAL, severity=_GAP_SEVERITY, text=text, stage=Stage.TIMING
    )


def _one(verdict: Verdict, change: Change) -> SpeedComparison:
    return SpeedComparison(verdict=verdict, changes=(change,))
