"""The counters stage: why a red cell is slower, read from the hardware in both environments.

Only for what is red, and of one finding only the cell that shows it most: profiling takes some ten seconds an
environment. It comes after timing, since a profiler slows down whatever else the GPU does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.gpus.devices import held
from matrix.gpus.profiler import Call, Counted, count, rows
from matrix.judging.speed import SpeedReason
from matrix.records import Role, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matrix.gpus.nvml import Gpu
    from matrix.records import ArmRecord, CounterRecord, VerdictRecord
    from matrix.running.plan import PlannedCell
    from matrix.running.workers import WorkerHome

_RED = (Verdict.REGRESSED, Verdict.MIXED)
_REASONS = (SpeedReason.SLOWER, SpeedReason.TUNER_SLOWER)
MOST_FINDINGS = 8


def red(verdicts: Iterable[VerdictRecord]) -> list[VerdictRecord]:
    """The timing rows that counters are read for: of each finding the one that got slowest, worst first."""
    slower = [row for row in verdicts if row.verdict in _RED and row.reason_code in _REASONS]
    slower.sort(key=lambda row: (-row.severity, -_ratio(row)))
    worst: dict[str, VerdictRecord] = {}
    for row in slower:
        worst.setdefault(row.finding_id or row.candidate_cell_id, row)
    return list(worst.values())


def count_red(
    verdicts: Iterable[VerdictRecord],
    arms: Iterable[ArmRecord],
    planned: Iterable[PlannedCell],
    homes: Mapping[str, WorkerHome],
    gpus: Sequence[Gpu],
    say: Callable[[str], None],
    profile: Callable[[Call], Counted] = count,
) -> list[CounterRecord]:
    """Profile the red cells, baseline and candidate, on the GPUs that they were timed on. Never raises for ncu."""
    timed = {arm.cell_id: arm for arm in arms if arm.role is not Role.CONTROL}
    cells = {cell.cell.id: cell for cell in planned}
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    found: list[CounterRecord] = []
    worst = red(verdicts)
    if len(worst) > MOST_FINDINGS:
        say(f"counters are read for the {MOST_FINDINGS} worst of {len(worst)} findings")
    for row in worst[:MOST_FINDINGS]:
        for cell_id in (row.baseline_cell_id, row.candidate_cell_id):
            arm = timed.get(cell_id)
            cell = cells.get(plain(arm)) if arm else None
            if arm is None or cell is None or arm.gpu_uuid not in by_uuid or arm.environment not in homes:
                continue
            with held(by_uuid[arm.gpu_uuid], say):
                counted = profile(_call(arm, cell, homes[arm.environment]))
            found += rows(counted, **_identity(arm))
    return found


def plain(arm: ArmRecord) -> str:
    """The id of the arm's cell as it was planned, without the label that tells how its kernels were tuned."""
    label = f"tuning={arm.tuning}"
    return arm.cell_id.removesuffix(label).rstrip(",:") if arm.tuning else arm.cell_id


def _call(arm: ArmRecord, cell: PlannedCell, home: WorkerHome) -> Call:
    pinned = {kernel: values for kernel, values in arm.configurations.items() if isinstance(values, dict)}
    return Call(
        interpreter=home.interpreter,
        variables={**home.variables, "CUDA_VISIBLE_DEVICES": arm.gpu_uuid},
        path=cell.case.path,
        case=cell.case.name,
        params=cell.params,
        # Each with the configuration that it was timed with: tuning again could choose another.
        pinned=pinned,
        pythonpath=list(home.pythonpath),
    )


def _identity(arm: ArmRecord) -> dict[str, str]:
    names = ("run_id", "host", "gpu_uuid", "environment", "target", "case", "params", "cell_id")
    return {name: getattr(arm, name) for name in names}


def _ratio(row: VerdictRecord) -> float:
    return row.candidate_value / row.baseline_value if row.candidate_value and row.baseline_value else 0.0
