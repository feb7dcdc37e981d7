"""The same PTX through the other side's assembler: is a finding in the code Triton's change or the assembler's?

Of each finding in the code, and each target, the worst cell's kernels are assembled four ways: each side's PTX with its
own assembler, which must give the recorded code again, and with the other's. Assembler means ptxas with the options
that this release of Triton hands to it. No GPU takes part. :mod:`matrix.explaining.crossed` says what crossings mean.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from matrix.code.evidence import kernel_facts_batch
from matrix.judging.changes import CodeReason
from matrix.judging.code_risk import identical, risk_changes
from matrix.judging.findings import REGRESSIONS
from matrix.judging.kernel_pairs import matched
from matrix.model import Outcome, Stage, Target
from matrix.records import AssemblyRecord, Verdict
from matrix.running.pool import Lane, Pool, Task
from matrix.storage.cache import key_of, lasting, worker_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.judging.thresholds import Thresholds
    from matrix.records import KernelFacts, KernelRecord, VerdictRecord
    from matrix.running.execute import Bench
    from matrix.running.workers import WorkerHome
    from matrix.storage.artifacts import Artifacts

    Pair = tuple[KernelRecord, KernelRecord]

_TIMEOUT_S = 300.0
# Reasons that no single kernel's code shows.
_ELSEWHERE = frozenset(
    (
        CodeReason.COMPILE_TIME_MULTIPLIED,
        CodeReason.COMPILE_TIME_CUT,
        CodeReason.CONFIGURATION_LOST,
        CodeReason.CONFIGURATION_GAINED,
        CodeReason.KERNELS_CHANGED,
    )
)
_REASONS = frozenset(CodeReason) - _ELSEWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One kernel's PTX with one side's assembler."""

    pair: Pair
    row: VerdictRecord
    of_candidate: bool  # whose PTX
    by_candidate: bool  # whose assembler

    @property
    def record(self) -> KernelRecord:
        return self.pair[self.of_candidate]

    @property
    def assembler(self) -> str:
        return self.row.candidate if self.by_candidate else self.row.baseline


def in_question(
    verdicts: Iterable[VerdictRecord], kernels: Iterable[KernelRecord]
) -> list[tuple[VerdictRecord, list[Pair]]]:
    """Findings in the code: of each, and each target, the worst cell with those of its kernels that differ."""
    by_cell: dict[str, list[KernelRecord]] = {}
    for kernel in kernels:
        by_cell.setdefault(kernel.cell_id, []).append(kernel)
    worst: dict[tuple[str, str, str], VerdictRecord] = {}
    for row in verdicts:
        told = row.verdict in REGRESSIONS or row.verdict is Verdict.IMPROVED
        if told and row.stage == Stage.COMPILE and row.reason_code in _REASONS and not Target(row.target).is_amd:
            key = (row.finding_id, row.candidate, row.target)
            worst[key] = max(worst.get(key, row), row, key=lambda one: abs(one.severity))
    found = []
    for row in worst.values():
        pairs, _ = matched(by_cell.get(row.baseline_cell_id, ()), by_cell.get(row.candidate_cell_id, ()))
        own = [
            pair for pair in pairs if row.kernel in ("", pair[0].kernel) and not identical(pair[0].facts, pair[1].facts)
        ]
        if own:
            found.append((row, own))
    return found


def reassemble(
    bench: Bench,
    homes: Mapping[str, WorkerHome],
    locks: Mapping[str, str],
    verdicts: Iterable[VerdictRecord],
    kernels: Iterable[KernelRecord],
    thresholds: Thresholds,
) -> list[AssemblyRecord]:
    """Every crossing of what is in question, with what its code shows of the finding."""
    crossings = [
        Crossing(pair=pair, row=row, of_candidate=of, by_candidate=by)
        for row, pairs in in_question(verdicts, kernels)
        if {row.baseline, row.candidate} <= homes.keys()
        for pair in pairs
        for of in (False, True)
        for by in (False, True)
    ]
    parts = _assembled(bench, homes, locks, crossings)
    facts = _facts(bench.artifacts, crossings, parts)
    return [
        _record(crossing, part, read, thresholds) for crossing, part, read in zip(crossings, parts, facts, strict=True)
    ]


def _assembled(
    bench: Bench, homes: Mapping[str, WorkerHome], locks: Mapping[str, str], crossings: Sequence[Crossing]
) -> list[dict[str, Any]]:
    """A part for each crossing, in order; equal work is done once, and kept."""
    keys = [_key(crossing, locks) for crossing in crossings]
    done: dict[str, dict[str, Any]] = {}
    lanes: dict[tuple[str, str], Lane] = {}
    for key, crossing in zip(keys, crossings, strict=True):
        known = bench.cache.get(key)
        if known is not None and bench.artifacts.holds([known["cubin"]] if known["cubin"] else []):
            done[key] = known
        elif key not in done:
            done[key] = {}
            place = (crossing.assembler, crossing.record.target)
            spec = homes[place[0]].spec("compile", place[1])
            lane = lanes.setdefault(place, Lane(spec=spec, tasks=deque()))
            lane.tasks.append(Task(key=key, request=_request(bench, crossing), timeout_s=_TIMEOUT_S))
    for result in Pool(slots=bench.slots, logs=bench.scratch).run(list(lanes.values())):
        part = {"cubin": "", "ptxas_version": "", **result.parts[-1]}
        bench.artifacts.take(bench.spool, [part["cubin"]] if part["cubin"] else [])
        if lasting([part]):
            bench.cache.put(result.task.key, part)
        done[result.task.key] = part
    return [done[key] for key in keys]


def _key(crossing: Crossing, locks: Mapping[str, str]) -> str:
    record = crossing.record
    said = {name: record.options.get(name) for name in ("enable_fp_fusion", "ptx_options")}
    ptx, lock = record.artifacts["ptx"], locks[crossing.assembler]
    return key_of({"assemble": ptx, "lock": lock, "target": record.target, "options": said, "worker": worker_digest()})


def _request(bench: Bench, crossing: Crossing) -> dict[str, Any]:
    record = crossing.record
    text = bench.spool / f"{record.artifacts['ptx']}.ptx"
    text.write_bytes(bench.artifacts.get(record.artifacts["ptx"]))
    return {"op": "assemble", "ptx": str(text), "options": record.options, "spool": str(bench.spool)}


def _facts(
    artifacts: Artifacts, crossings: Sequence[Crossing], parts: Sequence[Mapping[str, Any]]
) -> list[KernelFacts | None]:
    """What each cubin shows, read as any other's: many through one call, target by target."""
    found: list[KernelFacts | None] = [None] * len(crossings)
    by_target: dict[str, list[int]] = {}
    for place, part in enumerate(parts):
        if part["cubin"]:
            by_target.setdefault(crossings[place].record.target, []).append(place)
    for target, places in by_target.items():
        kernels = [_described(crossings[place].record, parts[place]["cubin"]) for place in places]
        for place, read in zip(places, kernel_facts_batch(kernels, artifacts.get, target), strict=True):
            found[place] = read.facts
    return found


def _described(record: KernelRecord, cubin: str) -> dict[str, Any]:
    """The kernel as workers report it, with another cubin."""
    return {
        "name": record.kernel,
        "artifacts": {**record.artifacts, "cubin": cubin},
        "num_warps": record.num_warps,
        "shared_bytes": record.facts.shared_bytes,
        "tensor_memory_columns": record.facts.tensor_memory_columns,
        "grid": record.grid,
        "arguments": record.arguments,
        "signature": record.signature,
    }


def _record(
    crossing: Crossing, part: Mapping[str, Any], facts: KernelFacts | None, thresholds: Thresholds
) -> AssemblyRecord:
    record, row = crossing.record, crossing.row
    base = crossing.pair[0].facts
    changes = risk_changes(base, facts, thresholds) if facts else []
    outcome, reason = part["outcome"], part["reason"]
    if facts is None and outcome == Outcome.PASSED:
        outcome, reason = str(Outcome.INVALID), "the code cannot be read"
    return AssemblyRecord(
        run_id=row.run_id,
        finding_id=row.finding_id,
        baseline=row.baseline,
        candidate=row.candidate,
        target=row.target,
        case=row.case,
        params=row.params,
        kernel=record.kernel,
        config=record.config,
        index=crossing.pair[0].index,
        of_candidate=crossing.of_candidate,
        by_candidate=crossing.by_candidate,
        ptxas_version=part["ptxas_version"],
        outcome=outcome,
        reason=reason,
        # As recorded, of a PTX with its own assembler.
        reproduced=facts is not None and facts.sass_hash == record.facts.sass_hash,
        shows=[str(change.reason_code) for change in changes],
        facts=asdict(facts) if facts else {},
        artifacts={"ptx": record.artifacts["ptx"], **({"cubin": part["cubin"]} if part["cubin"] else {})},
    )
