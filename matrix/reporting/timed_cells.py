"""The timing section's rows: every timed cell of a comparison with its figures and its place on the axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.judging.arm_pairs import ArmPair, ArmPairs
from matrix.judging.speed import drift, speed_titles, threshold
from matrix.model import Stage
from matrix.reporting.arm_table import clock, competitor_name, could_see, interval, rate, samples, spread
from matrix.reporting.forest import Axis, Whisker, axis
from matrix.wording import LOOKS, Look, microseconds, phrase, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.judging.groups import Group
    from matrix.records import ArmRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder

# Rows of a comparison that are drawn at once; the rest opens on demand. Beyond what the page lists of all
# comparisons together, rows are in the tables alone.
DRAWN = 60
LISTED = 600
_FEWEST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCell:
    """One cell: how it is drawn, and its figures as texts."""

    case: str
    params: str
    host: str
    target: str
    look: Look
    word: str
    anchor: str
    whisker: Whisker
    ratio: str
    figures: Mapping[str, str]
    tuned: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedComparison:
    """All cells of one candidate, slowest first; ``untimed`` are verdicts without figures."""

    baseline: str
    candidate: str
    axis: Axis
    band: Whisker  # the threshold, both ways; of the noisiest cell where several GPUs differ
    cells: Sequence[TimedCell]  # those that the page lists
    more: int  # beyond them
    untimed: int
    names: Sequence[str]


def timed_comparisons(runs: Sequence[RunFolder], groups: Iterable[Group]) -> list[TimedComparison]:
    anchors = {group.finding.finding_id: group.anchor for group in groups}
    pairs = {run.run_id: run.pairs for run in runs if run.timings}
    found: dict[tuple[str, str], list[tuple[RunFolder, VerdictRecord]]] = {}
    for run in runs:
        for row in run.verdicts:
            if row.stage == Stage.TIMING and run.run_id in pairs:
                found.setdefault((row.baseline, row.candidate), []).append((run, row))
    listed = max(_FEWEST, LISTED // max(1, len(found)))
    return [_comparison(names, rows, pairs, anchors, listed) for names, rows in found.items()]


def arms_of(pairs: ArmPairs, row: VerdictRecord) -> ArmPair | None:
    return pairs.find(row.baseline, row.candidate, case=row.case, target=row.target, params=row.params)


def _comparison(
    names: tuple[str, str],
    rows: Sequence[tuple[RunFolder, VerdictRecord]],
    pairs: Mapping[str, ArmPairs],
    anchors: Mapping[str, str],
    listed: int,
) -> TimedComparison:
    seen = [(run, row, pair) for run, row in rows if (pair := arms_of(pairs[run.run_id], row)) and pair.candidate.ratio]
    allowed = math.exp(max((threshold(pair, run.thresholds) for run, _, pair in seen), default=0.0))
    seen.sort(key=lambda one: -(one[2].candidate.ratio or 1))
    # Slowest first; of too many, the slowest and some of the fastest.
    kept = seen if len(seen) <= listed else [*seen[: listed - listed // 4], *seen[-(listed // 4) :]]
    drawn = axis(end for _, row, pair in kept for end in _ends(row, pair.candidate))
    cells = [_cell(run, row, pair, drawn, anchors) for run, row, pair in kept]
    return TimedComparison(
        baseline=names[0],
        candidate=names[1],
        axis=drawn,
        band=drawn.whisker(1.0, 1 / allowed, allowed),
        cells=cells,
        more=len(seen) - len(kept),
        untimed=len(rows) - len(seen),
        names=list(dict.fromkeys(name for cell in cells for name in cell.figures)),
    )


def _cell(run: RunFolder, row: VerdictRecord, pair: ArmPair, drawn: Axis, anchors: Mapping[str, str]) -> TimedCell:
    arm = pair.candidate
    ratio = arm.ratio or 1.0
    return TimedCell(
        case=row.case,
        params=row.params,
        host=run.host,
        target=row.target,
        look=LOOKS[row.verdict],
        word=speed_titles().get(row.reason_code, phrase(row.reason_code)),
        anchor=anchors.get(row.finding_id, ""),
        whisker=drawn.whisker(ratio, *_ends(row, arm)),
        ratio=times(ratio),
        figures={name: text for name, text in _figures(row, pair).items() if text},
        tuned="; ".join(drift(pair.baseline, arm)),
    )


def _ends(row: VerdictRecord, arm: ArmRecord) -> tuple[float, float]:
    """The interval that decided; of rows that were not judged the arm's. What no block bounds ends nowhere."""
    low, high = (row.ratio_low, row.ratio_high) if row.ratio else (arm.ratio_low, arm.ratio_high)
    return (low or 1e-3), (high or 1e3)


def _figures(row: VerdictRecord, pair: ArmPair) -> dict[str, str]:
    one, other = pair.baseline, pair.candidate
    return {
        "baseline": f"{microseconds(one.median_us)} ({spread(one)})",
        "candidate": f"{microseconds(other.median_us)} ({spread(other)})",
        "ratio": interval(row, other),
        "in cycles": times(other.cycles_ratio) if other.cycles_ratio else "",
        "throughput": rate(other),
        "competitor": f"{microseconds(other.competitor_us)} {competitor_name(other.competitor)}"
        if other.competitor
        else "",
        "a launch": f"{microseconds(one.launch_us)} → {microseconds(other.launch_us)}" if other.launch_us else "",
        "clock": clock(other),
        "could have seen": could_see(row),
        "samples": f"{samples(other)}, {other.cache}",
        "said": "; ".join((*other.problems, *other.warnings)),
    }
