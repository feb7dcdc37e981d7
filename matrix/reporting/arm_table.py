"""The figures of two timed arms side by side: the evidence of a finding about time."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from matrix.judging.speed import SpeedReason, drift
from matrix.records import Verdict
from matrix.reporting.evidence_table import FactRow
from matrix.wording import NOTHING, change, microseconds, number, percent, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.judging.arm_pairs import ArmPair
    from matrix.records import ArmRecord, VerdictRecord

# How a worker names a function of a case file, whose module is private (matrix.worker.cases).
_OF_A_CASE = re.compile(r"_matrix_case_(?P<case>.+)_[0-9a-f]{10}\.(?P<name>.+) of (?P<version>.+)")
_LAUNCH = (SpeedReason.LAUNCH_SLOWER, SpeedReason.LAUNCH_FASTER)


def arm_rows(verdict: VerdictRecord, pair: ArmPair) -> list[FactRow]:
    """What was measured on both sides, the verdict's reason first."""
    one, other = pair.baseline, pair.candidate
    direction = "better" if verdict.verdict is Verdict.IMPROVED else "worse" if verdict.severity > 0 else ""
    launch = verdict.reason_code in _LAUNCH
    rows = [
        FactRow(
            label=f"Time of a call, {one.cache} cache (median)",
            baseline=microseconds(one.median_us),
            candidate=microseconds(other.median_us),
            change=times(other.ratio),
            direction="" if launch else direction,
        ),
        _row("20th to 80th percentile", spread(one), spread(other)),
        _row("Ratio, by paired rounds", "", interval(verdict, other)),
        _row("Ratio in cycles", "", times(other.cycles_ratio) if other.cycles_ratio else ""),
        _times_row("Time with a warm cache", one.warm_median_us, other.warm_median_us),
        _row("Throughput", throughput(one), throughput(other)),
        _row(f"Share of this GPU's own {other.ceiling} rate", share(one), share(other)),
        _row(
            f"Competitor: {competitor_name(other.competitor)}",
            microseconds(one.competitor_us),
            microseconds(other.competitor_us),
        )
        if other.competitor
        else None,
        _times_row("Host time of a launch", one.launch_us, other.launch_us, direction if launch else ""),
        _row("SM clock", clock(one), clock(other)),
        _row("First call, compilation included", _seconds(one), _seconds(other)),
        _row("Samples", samples(one), samples(other)),
    ]
    return [row for row in rows if row is not None]


def arm_notes(verdict: VerdictRecord, pair: ArmPair) -> Iterator[str]:
    """What a reader must know beside the figures."""
    arm = pair.candidate
    yield from (f"{side}: {said}" for side, said in _said(pair))
    yield from (f"The tuner chose differently: {moved}." for moved in drift(pair.baseline, arm))
    if seen := could_see(verdict):
        yield f"The smallest slow-down that this cell would have been called for: {seen}."
    if verdict.q_value is not None and verdict.method:
        yield f"{verdict.method}: p = {verdict.p_value:.2g}, q = {verdict.q_value:.2g}."
    if pair.floor:
        yield f"The same environment against itself, on this GPU in this run: within {percent(pair.floor)} (p95)."
    method = arm.method or "interleaved rounds"
    yield (
        f"{method[:1].upper()}{method[1:]}; {arm.blocks} blocks, {arm.rounds} rounds; "
        f"false-alarm rate {percent(arm.alpha)}; ended: {arm.stopped}."
    )


def _said(pair: ArmPair) -> Iterator[tuple[str, str]]:
    for side, arm in (("baseline", pair.baseline), ("candidate", pair.candidate)):
        for text in (*arm.problems, *arm.warnings):
            yield side.capitalize(), text


def interval(verdict: VerdictRecord, arm: ArmRecord) -> str:
    """The ratio with the interval that decided; of what was not judged, the measurement's own."""
    shown = verdict if verdict.ratio else arm
    return f"{times(shown.ratio)} ({times(shown.ratio_low)} to {times(shown.ratio_high)})" if shown.ratio else ""


def spread(arm: ArmRecord) -> str:
    return f"{microseconds(arm.p20_us)} to {microseconds(arm.p80_us)}"


def throughput(arm: ArmRecord) -> str:
    """In the unit of the rate that bounds the case: a share of matrix products is none of GB/s."""
    figures = [(arm.gb_s, "GB/s"), (arm.tflop_s, "TFLOP/s")]
    if arm.ceiling == "matmul":
        figures.reverse()
    return next((f"{value:,.{0 if value >= 100 else 1}f} {unit}" for value, unit in figures if value), "")


def share(arm: ArmRecord) -> str:
    """Of what this GPU measured for itself at the start of the run."""
    return number(arm.share_of_ceiling, "%") if arm.share_of_ceiling else ""


def rate(arm: ArmRecord) -> str:
    """GB/s or TFLOP/s, with the share of the GPU's own."""
    return f"{throughput(arm)} ({share(arm)} of its own {arm.ceiling} rate)" if share(arm) else throughput(arm)


def clock(arm: ArmRecord) -> str:
    if not arm.clock_mhz:
        return ""
    varied = f", varied by {percent(arm.clock_cv)}" if arm.clock_cv is not None else ""
    return f"{arm.clock_mhz:,.0f} MHz{varied}"


def could_see(verdict: VerdictRecord) -> str:
    seen = verdict.smallest_detectable
    return percent(seen) if seen is not None and math.isfinite(seen) else ""


def samples(arm: ArmRecord) -> str:
    calls = f" of {arm.calls} calls" if arm.calls > 1 else ""
    return f"{arm.samples:,}{calls}"


def _seconds(arm: ArmRecord) -> str:
    return number(arm.first_call_seconds, "s") if arm.first_call_seconds else ""


def _times_row(label: str, one: float | None, other: float | None, direction: str = "") -> FactRow | None:
    if one is None and other is None:
        return None
    return FactRow(
        label=label,
        baseline=microseconds(one),
        candidate=microseconds(other),
        change=change(one, other),
        direction=direction,
    )


def _row(label: str, one: str, other: str) -> FactRow | None:
    if not one and not other:
        return None
    return FactRow(label=label, baseline=one or NOTHING, candidate=other or NOTHING, change="")


def competitor_name(recorded: str) -> str:
    """As recorded, a case file's own function by the file's name instead of its private module."""
    own = _OF_A_CASE.fullmatch(recorded)
    if own is None:
        return recorded
    function = "an expression" if own["name"] == "<lambda>" else own["name"]
    return f"{function} in case file {own['case']}, {own['version']}"
