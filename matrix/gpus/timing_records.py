"""From what was timed to rows: cells, arms and rounds of one run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from matrix.gpus.arms import COLD, WARM
from matrix.gpus.stations import CONTROL
from matrix.judging.statistics import (
    StoppingRule,
    block_values,
    coefficient_of_variation,
    faster_than_physics,
    midmean,
    spread,
    standard_error,
)
from matrix.model import Cell, Outcome, Stage
from matrix.records import ArmRecord, CellRecord, Role, RoundRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.gpus.interleaving import Timed
    from matrix.gpus.rounds import TimedRound
    from matrix.gpus.timing import TimingRecord
    from matrix.judging.statistics import Blocks
    from matrix.running.recording import Arm

METHOD = "interleaved rounds, t-interval of block means of paired log-ratios; triton-matrix timing"
# 3: what a launch costs the host is without our own looking up of its params, 10 to 20 us a call.
METHOD_VERSION = 3
_MEMORY = {True: "all arms in the same memory", False: "each arm in memory of its own"}
# Of the bf16 rate that a GPU measured for itself: narrower types run at up to four times as much.
_NARROW_TYPES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """The rows of timed cells."""

    cells: tuple[CellRecord, ...] = ()
    arms: tuple[ArmRecord, ...] = ()
    rounds: tuple[RoundRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingClerk:
    """Writes timing rows for one run on one host. ``figures`` are what each GPU measured for itself, by UUID."""

    run_id: str
    host: str
    baseline: str
    environments: Mapping[str, Arm]
    figures: Mapping[str, Mapping[str, Any]]
    rule: StoppingRule

    def rows(self, timed: Timed) -> Timings:
        arms = tuple(self._arms(timed))
        return Timings(cells=tuple(self._cells(timed, arms)), arms=arms, rounds=tuple(self._rounds(timed)))

    def _cell(self, timed: Timed, environment: str) -> Cell:
        cell = timed.spot.cells[environment].cell
        label = ((("tuning", str(timed.tuning)),)) if timed.tuning else ()
        return replace(cell, params=(*cell.params, *label))

    def _cells(self, timed: Timed, arms: tuple[ArmRecord, ...]) -> Iterator[CellRecord]:
        told = {arm.environment: arm for arm in arms if arm.role is not Role.CONTROL}
        for environment in timed.spot.cells:
            cell, arm = self._cell(timed, environment), told.get(environment)
            failure = timed.failures.get(environment)
            outcome, reason, detail = Outcome.PASSED, "", ""
            if failure is not None:
                outcome, reason, detail = failure.outcome, failure.reason, failure.detail
            elif arm is not None:
                outcome = Outcome.INVALID if arm.problems else Outcome.PASSED
                reason, detail = "; ".join(arm.problems), _said(arm)
            yield CellRecord(
                **self.environments[environment].names(cell),
                run_id=self.run_id,
                host=self.host,
                stage=str(Stage.TIMING),
                outcome=str(outcome),
                reason=reason,
                detail=detail,
                seconds=timed.wall_seconds if timed.record else 0.0,
                started_at=timed.started_at,
            )

    def _arms(self, timed: Timed) -> Iterator[ArmRecord]:
        record = timed.record
        if record is None or timed.gpu is None:
            return
        for name in (record.baseline, *record.candidates, *([record.control] if record.control else [])):
            yield self._arm(timed, record, name)

    def _arm(self, timed: Timed, record: TimingRecord, name: str) -> ArmRecord:
        assert timed.gpu is not None
        environment = self.baseline if name == CONTROL else name
        cell = self._cell(timed, environment)
        judged = [r for r in record.rounds if r.arm == name and r.cache == record.judged_cache]
        of_all = spread(record.samples_us(name, record.judged_cache))
        clocks = [r.clock_mhz for r in judged if r.clock_mhz]
        launches = record.launch_us.get(name)
        against = self._against(record, name) if name != record.baseline else {}
        rates = _rates(timed, of_all.median, self.figures.get(timed.gpu.uuid, {}))
        physics = self._physics(timed, of_all.median) if record.judged_cache == COLD else ""
        competition = timed.competition
        warm = record.samples_us(name, WARM)
        return ArmRecord(
            **self.environments[environment].names(cell),
            run_id=self.run_id,
            host=self.host,
            gpu=timed.gpu.name,
            gpu_uuid=timed.gpu.uuid,
            role=_role(record, name),
            baseline=record.baseline,
            tuning=timed.tuning,
            configurations={k: dict(v) for k, v in record.opened[name].configurations.items()},
            cache=record.judged_cache,
            calls=record.calls,
            samples=of_all.samples,
            rounds=len(judged),
            blocks=len({r.block for r in judged}),
            median_us=of_all.median,
            p20_us=of_all.p20,
            p80_us=of_all.p80,
            warm_median_us=spread(warm).median if warm else None,
            clock_mhz=midmean(clocks) if clocks else None,
            clock_cv=coefficient_of_variation(clocks) if clocks else None,
            decision=str(record.decisions.get(name, "")),
            decision_in_time=str(record.decisions_in_time.get(name, "")),
            decision_in_cycles=str(record.decisions_in_cycles.get(name, "")),
            ratio=against.get("ratio"),
            ratio_low=against.get("low"),
            ratio_high=against.get("high"),
            cycles_ratio=against.get("cycles"),
            margin=record.margin,
            alpha=record.alpha,
            smallest_detectable=against.get("smallest"),
            bytes_moved=timed.traffic.get("bytes_moved"),
            flops=timed.traffic.get("flops"),
            gb_s=rates.gb_s,
            tflop_s=rates.tflop_s,
            share_of_ceiling=rates.share,
            ceiling=rates.ceiling,
            competitor=f"{competition.name} of torch {competition.version}" if competition else "",
            competitor_us=spread(competition.samples_us).median if competition else None,
            launch_us=spread(launches).p20 if launches else None,
            first_call_seconds=record.opened[name].first_call_seconds,
            problems=[*record.problems[name], *([physics] if physics else [])],
            warnings=list(record.warnings[name]),
            gpu_us=record.arms_us + record.flush_us,
            arms_us=record.arms_us,
            warmup_us=record.warmup_us,
            wall_seconds=timed.wall_seconds,
            setup_seconds=record.setup_seconds,
            stopped=record.stopped,
            method=f"{METHOD}; {_MEMORY[record.shared]}",
            standard_error=against.get("error"),
            cycles_error=against.get("cycles_error"),
            looks=len(self.rule.looks),
            method_version=METHOD_VERSION,
            parameters=self._parameters(record),
        )

    def _parameters(self, record: TimingRecord) -> dict[str, object]:
        """What the measurement was run with."""
        return {
            "looks": list(self.rule.looks),
            "alpha": self.rule.alpha,
            "margin": self.rule.margin,
            "cache": record.judged_cache,
            "calls": record.calls,
            "replayed": record.replayed,
            "samples_per_round": record.samples_per_round,
        }

    def _against(self, record: TimingRecord, name: str) -> dict[str, float]:
        control = record.log_ratios(record.control) if record.control else None
        return against(record.log_ratios(name), record.log_ratios(name, cycles=True), control, self.rule)

    def _physics(self, timed: Timed, median_us: float) -> str:
        figures, traffic = self.figures.get(timed.gpu.uuid, {}) if timed.gpu else {}, timed.traffic
        moved, rate = traffic.get("bytes_moved"), figures.get("matmul_bf16_tflop_s")
        # What was written last may stay in the L2, and never reach memory within the window.
        through_memory = max(0.0, moved - figures.get("l2_bytes", 0)) if moved else None
        return faster_than_physics(
            median_us,
            bytes_moved=through_memory,
            flops=traffic.get("flops"),
            memory_gb_s=figures.get("copy_gb_s"),
            arithmetic_tflop_s=rate * _NARROW_TYPES if rate else None,
        )

    def _rounds(self, timed: Timed) -> Iterator[RoundRecord]:
        record = timed.record
        for timed_round in record.rounds if record else ():
            assert record is not None
            environment = self.baseline if timed_round.arm == CONTROL else timed_round.arm
            yield self._round(timed, record, timed_round, self._cell(timed, environment))

    def _round(self, timed: Timed, record: TimingRecord, one: TimedRound, cell: Cell) -> RoundRecord:
        first = one.readings[0] if one.readings else None
        gained = {}
        if len(one.readings) == 2:
            before, after = (reading.throttled_ns for reading in one.readings)
            gained = {name: after.get(name, 0) - value for name, value in before.items() if after.get(name, 0) > value}
        return RoundRecord(
            run_id=self.run_id,
            cell_id=cell.id,
            environment=cell.environment,
            role=_role(record, one.arm),
            tuning=timed.tuning,
            block=one.block,
            round=one.round,
            cache=one.cache,
            samples_us=list(one.samples_us),
            queue_full=one.queue_full,
            clock_mhz=one.clock_mhz,
            busy_us=one.busy_us,
            wall_us=1e6 * (one.ended - one.began),
            worker_us=one.worker_us,
            sm_mhz=first.sm_mhz if first else None,
            memory_mhz=first.memory_mhz if first else None,
            power_w=first.power_w if first else None,
            temperature_c=first.temperature_c if first else None,
            reasons=list(first.reasons) if first else [],
            throttled_ns=gained,
        )


def against(blocks: Blocks, cycles: Blocks, control: Blocks | None, rule: StoppingRule) -> dict[str, float]:
    """An arm's figures against the baseline's, by what they are called here; what is unbounded is left out.

    ``blocks`` are log-ratios of time, ``cycles`` of clock cycles; ``error`` is the standard error of their mean.
    """
    interval, in_cycles = rule.interval(blocks), block_values(cycles)
    found = {
        "ratio": math.exp(interval.estimate),
        "low": math.exp(interval.low),
        "high": math.exp(min(interval.high, 50.0)),
        "smallest": rule.smallest_detectable(blocks, control),
        "error": standard_error(block_values(blocks)),
        "cycles": math.exp(float(in_cycles.mean())) if len(in_cycles) else math.nan,
        "cycles_error": standard_error(in_cycles),
    }
    return {name: value for name, value in found.items() if math.isfinite(value)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a call reaches, and as a share of the nearer of the two ceilings that the GPU measured for itself."""

    gb_s: float | None
    tflop_s: float | None
    share: float | None
    ceiling: str


def _rates(timed: Timed, median_us: float, figures: Mapping[str, Any]) -> Rates:
    moved, flops = timed.traffic.get("bytes_moved"), timed.traffic.get("flops")
    gb_s, tflop_s = moved / median_us * 1e-3 if moved else None, flops / median_us * 1e-6 if flops else None
    copy, matmul = figures.get("copy_gb_s"), figures.get("matmul_bf16_tflop_s")
    shares = {}
    if gb_s and copy:
        shares["copy"] = gb_s / copy
    if tflop_s and matmul:
        shares["matmul"] = tflop_s / matmul
    ceiling = max(shares, key=lambda name: shares[name]) if shares else ""
    return Rates(gb_s=gb_s, tflop_s=tflop_s, share=shares.get(ceiling), ceiling=ceiling)


def _role(record: TimingRecord, name: str) -> Role:
    if name == record.baseline:
        return Role.BASELINE
    return Role.CONTROL if name == record.control else Role.CANDIDATE


def _said(arm: ArmRecord) -> str:
    text = f"{arm.median_us:.2f} us (p20 {arm.p20_us:.2f}, p80 {arm.p80_us:.2f}, {arm.cache})"
    if arm.ratio is not None and arm.ratio_low is not None and arm.ratio_high is not None:
        text += f"; {arm.ratio:.4f} of the baseline's time [{arm.ratio_low:.4f}, {arm.ratio_high:.4f}]"
    return text
