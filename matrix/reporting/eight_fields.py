"""What must stand beside every figure that somebody signs: eight fields, each stated or said to be unknown.

GPU and clocks; exact shapes and dtypes; competitor, named and versioned; correctness check with tolerances;
warm-up and repetition; median and spread; GB/s or TFLOP/s; what was not tested.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from matrix.model import DIMENSIONS, Outcome, Stage
from matrix.reporting.arm_table import clock, competitor_name, interval, rate, samples, spread
from matrix.reporting.timed_cells import arms_of
from matrix.storage.store import read_counters
from matrix.wording import (
    LOOKS,
    RANK,
    by_target,
    duration,
    listing,
    microseconds,
    number,
    percent,
    phrase,
    plural,
    times,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from matrix.judging.arm_pairs import ArmPair, ArmPairs
    from matrix.records import ArmRecord, DimensionRecord, KernelRecord, VerdictRecord
    from matrix.storage.runfolder import RunFolder
    from matrix.wording import Look

_TENSORS = 8


class Field(NamedTuple):
    """One of the eight, in words."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One timed cell of one candidate with its eight fields."""

    case: str
    params: str
    target: str
    look: Look
    verdict: str
    waived: str
    fields: Sequence[Field]


class Figures:
    """The figures of one run, with what else the run knows about each."""

    def __init__(self, run: RunFolder, pairs: ArmPairs) -> None:
        self._run = run
        self._pairs = pairs
        self._kernels: dict[str, list[KernelRecord]] = defaultdict(list)
        self._dimensions: dict[str, list[DimensionRecord]] = defaultdict(list)
        for kernel in run.kernels:
            self._kernels[kernel.cell_id].append(kernel)
        for row in run.dimensions:
            self._dimensions[row.cell_id].append(row)
        self._counted = frozenset(row.cell_id for row in read_counters(run.path) if row.outcome == Outcome.PASSED)
        self._timed = by_target(arm.target for arm in run.timings)

    def of(self, candidate: str) -> list[Stated]:
        """All that was timed of a candidate, worst verdict first, then as in the run."""
        rows = [row for row in self._run.verdicts if row.candidate == candidate and row.stage == Stage.TIMING]
        found = [(row, pair) for row in rows if (pair := arms_of(self._pairs, row)) is not None]
        return [self._stated(*one) for one in sorted(found, key=lambda one: (RANK[one[0].verdict], -one[0].severity))]

    def _stated(self, row: VerdictRecord, pair: ArmPair) -> Stated:
        arm = pair.candidate
        return Stated(
            case=row.case,
            params=row.params,
            target=row.target,
            look=LOOKS[row.verdict],
            verdict=row.change,
            waived=row.waived or "",
            fields=(
                Field("Median and spread", _median(row, pair)),
                Field("GB/s or TFLOP/s", _rates(pair)),
                Field("GPU and clocks", self._gpu(pair)),
                Field("Shapes and dtypes", self._shapes(arm)),
                Field("Competitor", _competitor(arm)),
                Field("Correctness", self._correctness(arm)),
                Field("Warm-up and repetition", _repetition(arm)),
                Field("Not tested", self._untested(arm)),
            ),
        )

    def _gpu(self, pair: ArmPair) -> str:
        arm = pair.candidate
        known: Mapping[str, Any] = next(
            (gpu for gpu in self._run.meta.get("gpus") or () if gpu.get("uuid") == arm.gpu_uuid), {}
        )
        driver = f", driver {known['driver']}" if known.get("driver") else ", driver unknown"
        power = f", power limit {known['power_limit_w']:.0f} W" if known.get("power_limit_w") else ""
        clocks = f"SM clock {clock(pair.baseline) or 'unknown'} → {clock(arm) or 'unknown'}, {self._held()}"
        said = "; ".join(dict.fromkeys((*pair.baseline.warnings, *arm.warnings)))
        return f"{arm.gpu}{driver}{power}. {clocks}{'. ' if said else ''}{said}."

    def _held(self) -> str:
        request = dict(self._run.meta.get("request") or {})
        if "lock_clocks_mhz" not in request:
            return "whether held is not recorded"
        held = request["lock_clocks_mhz"]
        return f"held at {held} MHz" if held else "not held"

    def _shapes(self, arm: ArmRecord) -> str:
        kernels = self._kernels.get(untuned(arm), ())
        tensors = dict.fromkeys(text for kernel in kernels for text in map(_tensor, kernel.arguments) if text)
        params = arm.params.replace(",", ", ") or "no params"
        if not tensors:
            return f"{params}; the launches' own arguments were not recorded at this point."
        return f"{params}: {listing(tensors, limit=_TENSORS)}."

    def _correctness(self, arm: ArmRecord) -> str:
        rows = self._dimensions.get(untuned(arm), ())
        tried = [row for row in rows if row.outcome not in (Outcome.NOT_RUN, Outcome.REFUSED, Outcome.INVALID)]
        if not tried:
            return "Not checked in this run."
        failed = [row for row in tried if row.outcome != Outcome.PASSED]
        elsewhere = {row.run_id for row in tried} - {self._run.run_id}
        text = f"{plural(len(tried), 'dimension')} checked{_in_run(elsewhere)}, " + (
            f"failed: {listing(phrase(row.dimension) for row in failed)}" if failed else "all passed"
        )
        values = next((row for row in tried if row.dimension == "values"), None)
        if values is None:
            return f"{text}."
        error = f"; largest error against float64 {number(values.largest_error)}, allowed {values.budget}"
        share = f" ({percent(values.worst)} of it used)" if values.worst is not None else ""
        return f"{text}{error}{share}."

    def _untested(self, arm: ArmRecord) -> str:
        rows = {row.dimension: row.outcome for row in self._dimensions.get(untuned(arm), ())}
        untried = (Outcome.NOT_RUN, Outcome.REFUSED, Outcome.INVALID)
        dimensions = [phrase(name) for name in DIMENSIONS if name not in rows or rows[name] in untried]
        told = (
            f"correctness: {listing(dimensions, limit=len(dimensions))}" if dimensions else "",
            "" if arm.cell_id in self._counted else "hardware counters",
            f"time on any target but {listing(self._timed)}",
            "" if arm.warm_median_us is not None else "a warm cache",
        )
        return f"{'; '.join(filter(None, told))}."


def _in_run(run_ids: Collection[str]) -> str:
    """A result that another run measured and this one took over is that run's."""
    return f" in run {listing(sorted(run_ids))}" if run_ids else ""


def untuned(arm: ArmRecord) -> str:
    """The id of the cell that was compiled and checked: how its tuner was set is a matter of timing alone."""
    return arm.cell_id.removesuffix(f",tuning={arm.tuning}") if arm.tuning else arm.cell_id


def _tensor(argument: Mapping[str, Any]) -> str:
    if argument.get("kind") != "tensor":
        return ""
    shape = "x".join(map(str, argument.get("shape") or ())) or "scalar"
    return f"{argument.get('name', '?')} {shape} {argument.get('dtype', '?')}"


def _median(row: VerdictRecord, pair: ArmPair) -> str:
    one, other = pair.baseline, pair.candidate
    return (
        f"{microseconds(one.median_us)} (p20 to p80: {spread(one)}) → {microseconds(other.median_us)} "
        f"({spread(other)}), {one.cache} cache. Ratio, by paired rounds: {interval(row, other) or 'unknown'}; "
        f"in cycles {times(other.cycles_ratio)}."
    )


def _rates(pair: ArmPair) -> str:
    one, other = rate(pair.baseline), rate(pair.candidate)
    if not (one and other):
        return "The case states neither bytes moved nor operations."
    return f"{one} → {other}{_other_rate(pair.candidate)}."


def _other_rate(arm: ArmRecord) -> str:
    """The unit that :func:`rate` does not use, where the case states both."""
    if arm.gb_s is None or arm.tflop_s is None:
        return ""
    return f"; also {arm.gb_s:,.0f} GB/s" if arm.ceiling == "matmul" else f"; also {arm.tflop_s:,.1f} TFLOP/s"


def _competitor(arm: ArmRecord) -> str:
    if not arm.competitor:
        return "The case names none."
    measured = microseconds(arm.competitor_us) if arm.competitor_us else "not timed"
    return f"{competitor_name(arm.competitor)}: {measured}."


def _repetition(arm: ArmRecord) -> str:
    return "; ".join(_repeated(arm)) + "."


def _repeated(arm: ArmRecord) -> Iterator[str]:
    warm = arm.warmup_us
    yield (
        f"{warm / 1e3:,.0f} ms of GPU time in warm-ups, over all arms"
        if warm
        else "warmed up before the first sample, how long is not recorded"
    )
    yield f"first call ({duration(arm.first_call_seconds)}, compilation included) left out"
    yield f"{samples(arm)} samples in {plural(arm.rounds, 'round')} of {plural(arm.blocks, 'block')}"
    yield f"ended: {arm.stopped}"
    yield f"false alarms at most {percent(arm.alpha)} a cell"
    yield arm.method
