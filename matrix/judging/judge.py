"""The candidate against the baseline, row by row: one verdict per target, case, params and stage.

:mod:`matrix.judging.judge_tables` is who asks, of the cells that tell something.

What is planned for one side and has no record on the other is incomplete; so is a compiled cell without
evidence, and a timed cell without arms. A case that does not import fails once, at the import stage: its later
stages adopt that outcome. Likewise a call that raises fails once, and has cells of its own for those configurations
of its kernels alone that it had come to: the others adopt its outcome.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from matrix.judging import outcomes
from matrix.judging.arm_pairs import ArmPairs
from matrix.judging.cellnames import plain_params
from matrix.judging.changes import Change, Direction, encode
from matrix.judging.expectations import concerns
from matrix.judging.family import examine
from matrix.judging.judgement import Judgement, Side, judge_configuration, judge_spot
from matrix.judging.kernel_pairs import same_launches
from matrix.judging.kinds import kind_of
from matrix.judging.speed import Speed, SpeedComparison, TimedPair, compare_speed, problems_of
from matrix.model import CPU, Outcome, Stage, Target
from matrix.records import Tuning, Verdict, VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.case import Expect
    from matrix.judging.arm_pairs import ArmPair
    from matrix.judging.thresholds import Thresholds
    from matrix.records import CellRecord, DimensionRecord, KernelRecord

NOTHING_RUN = "nothing_run"
_PINNED, _RETUNED = f"tuning={Tuning.PINNED}", f"tuning={Tuning.RETUNED}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Whose verdicts these are."""

    run_id: str
    baseline: str
    candidate: str


class Spot(NamedTuple):
    """What two environments have in common: where one verdict is given."""

    case: str
    target: str
    params: str
    stage: str

    @property
    def call(self) -> Spot:
        """Where the call of the case stands whose kernels were compiled, or timed, as the params' label says."""
        return self._replace(params=plain_params(self.params))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One environment's records, by spot; ``imports`` by case, ``labelled`` cells by their call's spot."""

    cells: dict[Spot, CellRecord]
    kernels: dict[Spot, list[KernelRecord]]
    dimensions: dict[Spot, list[DimensionRecord]]
    imports: dict[str, CellRecord]
    labelled: dict[Spot, list[CellRecord]]
    versions: set[str] = field(default_factory=set)  # of Triton: one, unless runs of several hosts are judged as one
    sides: dict[Spot, Side] = field(default_factory=dict)  # as far as they were asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What verdicts are given by, beside the two sides' own records."""

    expectations: Mapping[str, Sequence[Expect]]
    thresholds: Thresholds
    timed: Mapping[Spot, TimedPair] = field(default_factory=dict)
    all_configurations: bool = True  # or the first of each kernel that tunes itself


@functools.lru_cache(maxsize=16)
def one_object(thresholds: Thresholds) -> Thresholds:
    """What is compared by the same thresholds is remembered by that object (matrix.judging.kernel_pairs)."""
    return thresholds


def judge_spots(place: Place, arms: tuple[Arm, Arm], spots: Sequence[Spot], rules: Rules) -> list[VerdictRecord]:
    """A row for each of these spots; one that nothing was run where there is none."""
    baseline, candidate = arms
    if not spots:
        return [verdict_row(place, Spot("", CPU, "", Stage.IMPORT), _nothing_run(), None, None)]
    rows = []
    foreseen: dict[str, Sequence[Expect]] = {}
    for spot in spots:
        one, other = _side(baseline, spot), _side(candidate, spot)
        if spot.case not in foreseen:
            foreseen[spot.case] = _foreseen(rules.expectations.get(spot.case, ()), baseline, candidate)
        expectations = foreseen[spot.case]
        if spot.stage != Stage.TIMING:
            judgement = _tuned_otherwise(arms, (one, other), spot, rules) or judge_spot(
                one, other, spot.stage, expectations, rules.thresholds
            )
            rows.append(verdict_row(place, spot, judgement, one, other))
            continue
        speed = _speed(spot, rules)
        judgement = judge_spot(one, other, spot.stage, expectations, rules.thresholds, speed=speed)
        if not one.outcome is other.outcome is Outcome.PASSED:
            speed = _untimed(judgement)
        unchanged = _unchanged(baseline, candidate, spot)
        rows.append(verdict_row(place, spot, judgement, one, other, speed, unchanged=unchanged))
    return rows


def _foreseen(expectations: Sequence[Expect], baseline: Arm, candidate: Arm) -> Sequence[Expect]:
    """Those that speak about one of the two releases: of what is known of releases, few do."""
    versions = baseline.versions | candidate.versions
    return [each for each in expectations if any(concerns(each.triton, version) for version in versions)]


def timed_pairs(place: Place, spots: Sequence[Spot], pairs: ArmPairs, thresholds: Thresholds) -> dict[Spot, TimedPair]:
    """Every timed pair of this comparison; those without a problem are tested together."""
    found: dict[Spot, ArmPair] = {}
    for spot in spots:
        if spot.stage == Stage.TIMING:
            where = {"case": spot.case, "target": spot.target, "params": spot.params}
            pair = pairs.find(place.baseline, place.candidate, **where)
            if pair is not None:
                found[spot] = pair
    sound = [spot for spot, pair in found.items() if not problems_of(pair)]
    tests = dict(zip(sound, examine([found[spot] for spot in sound], thresholds), strict=True))
    return {spot: TimedPair(pair=pair, test=tests.get(spot)) for spot, pair in found.items()}


def _speed(spot: Spot, rules: Rules) -> SpeedComparison:
    """Whether or not both sides were timed: only then it counts."""
    alike = None
    if _RETUNED in spot.params:
        alike = rules.timed.get(spot._replace(params=spot.params.replace(_RETUNED, _PINNED)))
    return compare_speed(rules.timed.get(spot), alike, rules.thresholds)


def _unchanged(baseline: Arm, candidate: Arm, spot: Spot) -> bool:
    """Whether both sides launch the same machine code alike: a negative control. Not where each side tuned anew."""
    params = spot.params.removesuffix(f",{_PINNED}")
    code = Spot(spot.case, spot.target, params, Stage.COMPILE)
    return same_launches(baseline.kernels.get(code, ()), candidate.kernels.get(code, ()))


def _untimed(judgement: Judgement) -> SpeedComparison:
    """Where outcomes decide, nothing was timed that counts."""
    speed = Speed.INVALID if judgement.changes[0].reason_code == Outcome.INVALID else Speed.NOT_RUN
    return SpeedComparison(verdict=judgement.verdict, changes=(), speed=speed)


def _nothing_run() -> Judgement:
    change = Change(reason_code=NOTHING_RUN, direction=Direction.NEUTRAL, severity=9, text="nothing was run")
    return Judgement(verdict=Verdict.INCOMPLETE, changes=(change,))


def arms_of(
    names: Iterable[str],
    cells: Iterable[CellRecord],
    kernels: Iterable[KernelRecord],
    dimensions: Iterable[DimensionRecord],
) -> dict[str, Arm]:
    """Every environment's records, each table gone through once."""
    arms = {name: _empty_arm() for name in names}
    for cell in cells:
        if arm := arms.get(cell.environment):
            spot = Spot(cell.case, cell.target, cell.params, cell.stage)
            arm.cells[spot] = cell
            if spot.call != spot:
                arm.labelled[spot.call].append(cell)
            arm.versions.add(cell.triton_version)
            if cell.stage == Stage.IMPORT:
                arm.imports[cell.case] = cell
    for kernel in kernels:
        if arm := arms.get(kernel.environment):
            arm.kernels[Spot(kernel.case, kernel.target, kernel.params, Stage.COMPILE)].append(kernel)
    for row in dimensions:
        if arm := arms.get(row.environment):
            arm.dimensions[Spot(row.case, row.target, row.params, Stage.CORRECTNESS)].append(row)
    return arms


def _empty_arm() -> Arm:
    return Arm(
        cells={}, kernels=defaultdict(list), dimensions=defaultdict(list), imports={}, labelled=defaultdict(list)
    )


def _side(arm: Arm, spot: Spot) -> Side:
    """Made once: the baseline's is asked for by every candidate."""
    side = arm.sides.get(spot)
    if side is None:
        side = arm.sides[spot] = _new_side(arm, spot)
    return side


def _new_side(arm: Arm, spot: Spot) -> Side:
    cell = arm.cells.get(spot) or _of_the_same_call(arm, spot)
    imported = arm.imports.get(spot.case)
    outcome = _OUTCOMES[cell.outcome] if cell else None
    if imported and imported.outcome != Outcome.PASSED and outcome in (None, Outcome.NOT_RUN, Outcome.IMPORT_ERROR):
        return Side(outcome=Outcome(imported.outcome), stage=Stage.IMPORT, cell=imported, kernels=())
    return Side(
        outcome=outcome,
        stage=spot.stage,
        cell=cell,
        kernels=arm.kernels.get(spot, ()),
        dimensions=arm.dimensions.get(spot, ()),
    )


def _of_the_same_call(arm: Arm, spot: Spot) -> CellRecord | None:
    """The cell that speaks for one without a record.

    A call that failed would have failed in every configuration that it never came to. One that has cells of its
    configurations alone came to its end, and is as good as the best of them.
    """
    if spot.call != spot:
        ended = arm.cells.get(spot.call)
        return ended if ended and outcomes.failed(_OUTCOMES[ended.outcome]) else None
    return min(arm.labelled.get(spot, ()), key=_severity, default=None)


def _tuned_otherwise(arms: tuple[Arm, Arm], sides: tuple[Side, Side], spot: Spot, rules: Rules) -> Judgement | None:
    """Where one side's call came to its end without the configuration that the spot is about."""
    (baseline, candidate), (one, other) = arms, sides
    if spot.stage != Stage.COMPILE or spot.call == spot:
        return None
    if one.outcome is None and _came_to_its_end(baseline, spot):
        return judge_configuration(other, Direction.BETTER, all_configurations=rules.all_configurations)
    if other.outcome is None and _came_to_its_end(candidate, spot):
        return judge_configuration(one, Direction.WORSE, all_configurations=rules.all_configurations)
    return None


def _came_to_its_end(arm: Arm, spot: Spot) -> bool:
    """A call that failed would have told: what speaks for the spot then is the call's own cell."""
    return spot.call in arm.cells or spot.call in arm.labelled


def _severity(cell: CellRecord) -> int:
    return outcomes.meaning(_OUTCOMES[cell.outcome]).severity


def verdict_row(
    place: Place,
    spot: Spot,
    judgement: Judgement,
    baseline: Side | None,
    candidate: Side | None,
    speed: SpeedComparison | None = None,
    *,
    unchanged: bool | None = None,
) -> VerdictRecord:
    first = judgement.changes[0]
    return VerdictRecord(
        run_id=place.run_id,
        baseline=place.baseline,
        candidate=place.candidate,
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
        negative_control=unchanged,
        **(speed.columns() if speed else {}),
    )


# Neither better nor worse, and still more to look at than code that merely changed.
_GRAVE = (Verdict.INCOMPLETE, Verdict.UNEXPECTED_PASS)


def _cell_id(side: Side | None) -> str:
    return side.cell.cell_id if side and side.cell else ""


_OUTCOMES = {str(outcome): outcome for outcome in Outcome}
_TARGET_ORDER = (CPU, *(str(target) for target in Target))
_STAGE_ORDER = tuple(str(stage) for stage in Stage)


def in_order(spot: Spot) -> tuple[str, int, int, str, str]:
    stage = _STAGE_ORDER.index(spot.stage) if spot.stage in _STAGE_ORDER else len(_STAGE_ORDER)
    target = _TARGET_ORDER.index(spot.target) if spot.target in _TARGET_ORDER else len(_TARGET_ORDER)
    return spot.case, stage, target, spot.params, spot.target
