"""The candidate against the baseline: one verdict row per target, case, params and stage.

What is planned for one side and has no record on the other is incomplete; so is a compiled cell without
evidence, and a timed cell without arms. A case that does not import fails once, at the import stage: its later
stages adopt that outcome.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from matrix.arm_pairs import ArmPairs
from matrix.changes import Change, Direction, encode
from matrix.family import examine
from matrix.findings import number
from matrix.judgement import Judgement, Side, judge_spot
from matrix.kernel_pairs import same_launches
from matrix.kinds import kind_of
from matrix.model import CPU, Outcome, Stage, Target
from matrix.records import Tuning, Verdict, VerdictRecord
from matrix.speed import Speed, SpeedComparison, TimedPair, compare_speed, problems_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.arm_pairs import ArmPair
    from matrix.case import Expect
    from matrix.records import ArmRecord, CellRecord, DimensionRecord, KernelRecord
    from matrix.thresholds import Thresholds

NOTHING_RUN = "nothing_run"
_TEMPLATE = VerdictRecord(
    run_id="",
    baseline="",
    candidate="",
    target="",
    case="",
    params="",
    stage="",
    verdict=Verdict.INCOMPLETE,
    reason_code="",
    change="",
)


class Spot(NamedTuple):
    """What two environments have in common: where one verdict is given."""

    case: str
    target: str
    params: str
    stage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One environment's records, by spot; ``imports`` by case."""

    cells: Mapping[Spot, CellRecord]
    kernels: Mapping[Spot, Sequence[KernelRecord]]
    dimensions: Mapping[Spot, Sequence[DimensionRecord]]
    imports: Mapping[str, CellRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What verdicts are given by, beside the two sides' own records."""

    expectations: Mapping[str, Sequence[Expect]]
    thresholds: Thresholds
    pairs: ArmPairs
    timed: Mapping[Spot, TimedPair] = field(default_factory=dict)


def judge(  # noqa: PLR0913 - everything that a run knows
    cells: Sequence[CellRecord],
    kernels: Sequence[KernelRecord],
    *,
    run_id: str,
    baseline: str,
    candidates: Sequence[str],
    expectations: Mapping[str, Sequence[Expect]],
    thresholds: Thresholds,
    timings: Sequence[ArmRecord] = (),
    dimensions: Sequence[DimensionRecord] = (),
) -> list[VerdictRecord]:
    """Every candidate against the baseline, with findings numbered. Environments go by their id.

    Of several records of one cell and stage the last one counts. A candidate that nobody ran, with nothing
    on the baseline's side either, still gets one incomplete row.
    """
    arms = {name: _arm(name, cells, kernels, dimensions) for name in (baseline, *candidates)}
    rules = Rules(expectations=expectations, thresholds=thresholds, pairs=ArmPairs(timings))
    rows: list[VerdictRecord] = []
    for candidate in candidates:
        template = replace(_TEMPLATE, run_id=run_id, baseline=baseline, candidate=candidate)
        rows += _candidate_rows(template, arms[baseline], arms[candidate], rules)
    return number(rows)


def _candidate_rows(template: VerdictRecord, baseline: Arm, candidate: Arm, rules: Rules) -> list[VerdictRecord]:
    spots = sorted({*baseline.cells, *candidate.cells}, key=_in_order)
    if not spots:
        return [_row(template, Spot("", CPU, "", Stage.IMPORT), _nothing_run(), None, None)]
    rules = replace(rules, timed=_timed(template, spots, rules))
    rows = []
    for spot in spots:
        one, other = _side(baseline, spot), _side(candidate, spot)
        expectations = rules.expectations.get(spot.case, ())
        speed = _speed(spot, rules) if spot.stage == Stage.TIMING else None
        judgement = judge_spot(one, other, spot.stage, expectations, rules.thresholds, speed=speed)
        row = _row(template, spot, judgement, one, other)
        if speed is not None:
            ran = one.outcome is other.outcome is Outcome.PASSED
            row = _with_speed(row, speed if ran else _untimed(row), _unchanged(baseline, candidate, spot))
        rows.append(row)
    return rows


def _timed(template: VerdictRecord, spots: Sequence[Spot], rules: Rules) -> dict[Spot, TimedPair]:
    """Every timed pair of this comparison; those without a problem are tested together."""
    found: dict[Spot, ArmPair] = {}
    for spot in spots:
        if spot.stage == Stage.TIMING:
            place = {"case": spot.case, "target": spot.target, "params": spot.params}
            pair = rules.pairs.find(template.baseline, template.candidate, **place)
            if pair is not None:
                found[spot] = pair
    sound = [spot for spot, pair in found.items() if not problems_of(pair)]
    tests = dict(zip(sound, examine([found[spot] for spot in sound], rules.thresholds), strict=True))
    return {spot: TimedPair(pair=pair, test=tests.get(spot)) for spot, pair in found.items()}


def _speed(spot: Spot, rules: Rules) -> SpeedComparison:
    """Whether or not both sides were timed: only then it counts."""
    pinned = spot._replace(params=spot.params.replace(f"tuning={Tuning.RETUNED}", f"tuning={Tuning.PINNED}"))
    alike = rules.timed.get(pinned) if pinned != spot else None
    return compare_speed(rules.timed.get(spot), alike, rules.thresholds)


def _unchanged(baseline: Arm, candidate: Arm, spot: Spot) -> bool:
    """Whether both sides launch the same machine code alike: a negative control. Not where each side tuned anew."""
    params = spot.params.removesuffix(f",tuning={Tuning.PINNED}")
    code = Spot(spot.case, spot.target, params, Stage.COMPILE)
    return same_launches(baseline.kernels.get(code, ()), candidate.kernels.get(code, ()))


def _with_speed(row: VerdictRecord, speed: SpeedComparison, unchanged: bool) -> VerdictRecord:
    return replace(row, negative_control=unchanged, **speed.columns())  # type: ignore[arg-type]  # by name


def _untimed(row: VerdictRecord) -> SpeedComparison:
    """Where outcomes decide, nothing was timed that counts."""
    speed = Speed.INVALID if row.reason_code == Outcome.INVALID else Speed.NOT_RUN
    return SpeedComparison(verdict=row.verdict, changes=(), speed=speed)


def _nothing_run() -> Judgement:
    change = Change(reason_code=NOTHING_RUN, direction=Direction.NEUTRAL, severity=9, text="nothing was run")
    return Judgement(verdict=Verdict.INCOMPLETE, changes=(change,))


def _arm(
    environment: str,
    cells: Iterable[CellRecord],
    kernels: Iterable[KernelRecord],
    dimensions: Iterable[DimensionRecord],
) -> Arm:
    own = [cell for cell in cells if cell.environment == environment]
    evidence: dict[Spot, list[KernelRecord]] = defaultdict(list)
    for kernel in kernels:
        if kernel.environment == environment:
            evidence[Spot(kernel.case, kernel.target, kernel.params, Stage.COMPILE)].append(kernel)
    seen: dict[Spot, list[DimensionRecord]] = defaultdict(list)
    for row in dimensions:
        if row.environment == environment:
            seen[Spot(row.case, row.target, row.params, Stage.CORRECTNESS)].append(row)
    return Arm(
        cells={Spot(cell.case, cell.target, cell.params, cell.stage): cell for cell in own},
        kernels=evidence,
        dimensions=seen,
        imports={cell.case: cell for cell in own if cell.stage == Stage.IMPORT},
    )


def _side(arm: Arm, spot: Spot) -> Side:
    cell = arm.cells.get(spot)
    imported = arm.imports.get(spot.case)
    outcome = Outcome(cell.outcome) if cell else None
    if imported and imported.outcome != Outcome.PASSED and outcome in (None, Outcome.NOT_RUN, Outcome.IMPORT_ERROR):
        return Side(outcome=Outcome(imported.outcome), stage=Stage.IMPORT, cell=imported, kernels=())
    return Side(
        outcome=outcome,
        stage=spot.stage,
        cell=cell,
        kernels=arm.kernels.get(spot, ()),
        dimensions=arm.dimensions.get(spot, ()),
    )


def _row(
    template: VerdictRecord, spot: Spot, judgement: Judgement, baseline: Side | None, candidate: Side | None
) -> VerdictRecord:
    first = judgement.changes[0]
    return replace(
        template,
        case=spot.case,
        target=spot.target,
        params=spot.params,
        stage=spot.stage,
        verdict=judgement.verdict,
        reason_code=str(first.reason_code),
        kind=str(kind_of(str(first.reason_code), first.stage or spot.stage)),
        change=first.said,
        baseline_value=first.baseline_value,
        candidate_value=first.candidate_value,
        severity=first.signed_severity or (first.severity if judgement.verdict in _GRAVE else 0),
        known=judgement.known.reason if judgement.known else "",
        link=judgement.known.link if judgement.known else "",
        kernel=first.kernel,
        baseline_cell_id=_cell_id(baseline),
        candidate_cell_id=_cell_id(candidate),
        detail=encode(judgement.changes),
    )


# Neither better nor worse, and still more to look at than code that merely changed.
_GRAVE = (Verdict.INCOMPLETE, Verdict.UNEXPECTED_PASS)


def _cell_id(side: Side | None) -> str:
    return side.cell.cell_id if side and side.cell else ""


_TARGET_ORDER = (CPU, *(str(target) for target in Target))
_STAGE_ORDER = tuple(str(stage) for stage in Stage)


def _in_order(spot: Spot) -> tuple[str, int, int, str, str]:
    stage = _STAGE_ORDER.index(spot.stage) if spot.stage in _STAGE_ORDER else len(_STAGE_ORDER)
    target = _TARGET_ORDER.index(spot.target) if spot.target in _TARGET_ORDER else len(_TARGET_ORDER)
    return spot.case, stage, target, spot.params, spot.target
