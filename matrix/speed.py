"""What a timed cell says about the candidate: time of a call, tuning, host time of a launch. Pure.

Whether two arms differ was decided while they ran (:mod:`matrix.statistics`): in time and in cycles, against a
margin of half a percent or what the control arm showed. What the difference *means* is decided here. With
``d`` the larger of the user's threshold and twice this GPU's noise floor in this run:

| decision | ratio | verdict | reason code |
| --- | --- | --- | --- |
| slower | above ``d`` | regressed | ``slower``; ``tuner_slower`` where the baseline's configuration is not |
| slower | within ``d`` | changed | ``slower_within_threshold`` |
| faster | above ``d`` | improved | ``faster``; ``tuner_faster`` |
| faster | within ``d`` | changed | ``faster_within_threshold`` |
| same | | equal | ``equivalent`` |
| undecided | the whole interval within ``d`` | equal | ``equivalent`` |
| undecided | otherwise | incomplete | ``undecided``, with the smallest change that would have shown |
| any, with a problem in either arm | | incomplete | ``invalid`` |
| the two never ran interleaved | | incomplete | ``not_paired`` |

The floor is the 95th percentile of what the control arms (the baseline against itself) were off by. Each
cell keeps its own false-alarm rate; a correction over the family of cells would stand between
:func:`matrix.judge.judge`'s rows and their findings.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matrix.changes import Change, Direction
from matrix.model import Stage
from matrix.records import Decision, Tuning, Verdict
from matrix.wording import microseconds, times

if TYPE_CHECKING:
    from matrix.arm_pairs import ArmPair
    from matrix.records import ArmRecord
    from matrix.thresholds import Thresholds


class SpeedReason(enum.StrEnum):
    """Reason codes of the timing stage."""

    SLOWER = "slower"
    TUNER_SLOWER = "tuner_slower"
    SLOWER_WITHIN_THRESHOLD = "slower_within_threshold"
    FASTER = "faster"
    TUNER_FASTER = "tuner_faster"
    FASTER_WITHIN_THRESHOLD = "faster_within_threshold"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
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
    SpeedReason.UNDECIDED: "too noisy to tell whether it is slower",
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
    """The verdict on a timed cell and the changes that it rests on, worst first."""

    verdict: Verdict
    changes: tuple[Change, ...]


def speed_titles() -> dict[str, str]:
    """Reason code to headline. ``invalid`` has the outcome's."""
    return {str(reason): title for reason, title in _TITLES.items()}


def compare_speed(pair: ArmPair | None, pinned: ArmPair | None, thresholds: Thresholds) -> SpeedComparison:
    """The candidate's arm against the baseline's. ``pinned``: the same point with the baseline's configuration."""
    if pair is None:
        text = "the two were never timed beside each other: run them together"
        return _one(Verdict.INCOMPLETE, _gap(SpeedReason.NOT_PAIRED, text))
    if wrong := _problems(pair):
        return _one(Verdict.INCOMPLETE, _gap(SpeedReason.INVALID, f"no verdict on time: {wrong}"))
    in_time = _in_time(pair, threshold(pair, thresholds))
    if pair.candidate.tuning is Tuning.RETUNED and pinned is not None:
        in_time = _split(in_time, pinned, thresholds)
    return _combined(in_time, _in_launch(pair, thresholds), _drift(pair))


def threshold(pair: ArmPair, thresholds: Thresholds) -> float:
    """``d``, as a log-ratio."""
    return max(math.log(thresholds.slower_ratio), 2 * pair.floor)


def _problems(pair: ArmPair) -> str:
    sides = (("baseline", pair.baseline), ("candidate", pair.candidate))
    return "; ".join(f"{side}: {', '.join(arm.problems)}" for side, arm in sides if arm.problems)


_DECIDED = {
    (Decision.SLOWER, True): (Verdict.REGRESSED, SpeedReason.SLOWER, Direction.WORSE),
    (Decision.SLOWER, False): (Verdict.CHANGED, SpeedReason.SLOWER_WITHIN_THRESHOLD, Direction.WORSE),
    (Decision.FASTER, True): (Verdict.IMPROVED, SpeedReason.FASTER, Direction.BETTER),
    (Decision.FASTER, False): (Verdict.CHANGED, SpeedReason.FASTER_WITHIN_THRESHOLD, Direction.BETTER),
    (Decision.SAME, True): (Verdict.EQUAL, SpeedReason.EQUIVALENT, Direction.NEUTRAL),
    (Decision.SAME, False): (Verdict.EQUAL, SpeedReason.EQUIVALENT, Direction.NEUTRAL),
    (Decision.UNDECIDED, True): (Verdict.INCOMPLETE, SpeedReason.UNDECIDED, Direction.NEUTRAL),
    (Decision.UNDECIDED, False): (Verdict.EQUAL, SpeedReason.EQUIVALENT, Direction.NEUTRAL),
}


def _in_time(pair: ArmPair, allowed: float) -> SpeedComparison:
    """What was decided, and whether it reaches beyond ``allowed``: the estimate, or the interval if undecided."""
    arm = pair.candidate
    decision = Decision(arm.decision)
    beyond = not _lies_within(arm.ratio, arm.ratio, allowed)
    if decision is Decision.UNDECIDED:
        beyond = not _lies_within(arm.ratio_low, arm.ratio_high, allowed)
    verdict, reason, direction = _DECIDED[decision, beyond]
    tight = decision is Decision.SAME or beyond
    return _one(verdict, _moved(pair, reason, direction, None if tight else allowed))


def _lies_within(low: float | None, high: float | None, allowed: float) -> bool:
    return bool(low and high) and -allowed <= math.log(low or 1) and math.log(high or 1) <= allowed


def _moved(pair: ArmPair, reason: SpeedReason, direction: Direction, allowed: float | None = None) -> Change:
    one, other = pair.baseline, pair.candidate
    text = f"time of a call {times(other.ratio)} ({times(other.ratio_low)} to {times(other.ratio_high)})"
    text += f": {microseconds(one.median_us)} → {microseconds(other.median_us)}"
    text += f", within the threshold of {times(math.exp(allowed))}" if allowed is not None else ""
    if reason is SpeedReason.UNDECIDED and other.smallest_detectable is not None:
        text += f"; a slow-down under {other.smallest_detectable:.1%} would not have shown".replace("%", " %")
    return Change(
        reason_code=reason,
        direction=direction,
        severity=_severity(reason, other.ratio),
        text=text,
        stage=Stage.TIMING,
        baseline_value=one.median_us,
        candidate_value=other.median_us,
    )


def _severity(reason: SpeedReason, ratio: float | None) -> int:
    match reason:
        case SpeedReason.SLOWER | SpeedReason.FASTER:
            factor = max(ratio or 1.0, 1 / (ratio or 1.0))
            return next(severity for least, severity in _SEVERITIES if factor >= least)
        case SpeedReason.UNDECIDED:
            return _GAP_SEVERITY
        case SpeedReason.EQUIVALENT:
            return 0
        case _:
            return 10


_TUNED = {SpeedReason.SLOWER: SpeedReason.TUNER_SLOWER, SpeedReason.FASTER: SpeedReason.TUNER_FASTER}


def _split(retuned: SpeedComparison, pinned: ArmPair, thresholds: Thresholds) -> SpeedComparison:
    """Whose doing: with the baseline's own configuration it is the compiler's, else the tuner's."""
    change = retuned.changes[0]
    code = _TUNED.get(SpeedReason(change.reason_code))
    if code is None or _problems(pinned):
        return retuned
    alike = _in_time(pinned, threshold(pinned, thresholds))
    if alike.verdict in (retuned.verdict, Verdict.INCOMPLETE):
        return retuned
    ratio = times(pinned.candidate.ratio)
    text = f"{change.text}; with the baseline's configuration {ratio}: the tuner chose differently"
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
    moved = drift(pair.baseline, pair.candidate)
    if not moved or pair.candidate.tuning is not Tuning.RETUNED:
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
    return SpeedComparison(verdict=verdict, changes=tuple(changes))


def _gap(reason: SpeedReason, text: str) -> Change:
    return Change(
        reason_code=reason, direction=Direction.NEUTRAL, severity=_GAP_SEVERITY, text=text, stage=Stage.TIMING
    )


def _one(verdict: Verdict, change: Change) -> SpeedComparison:
    return SpeedComparison(verdict=verdict, changes=(change,))
