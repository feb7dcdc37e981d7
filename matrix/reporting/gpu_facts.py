"""What this run's instrument was and could see: the GPU, its noise floor, the false-alarm rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from matrix.judging.arm_pairs import noise_floors
from matrix.records import Role
from matrix.storage.rows import column
from matrix.wording import duration, percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.records import ArmRecord
    from matrix.storage.runfolder import RunFolder

    Gpu = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU of one run; ``facts`` are texts by name, in the order in which they are read."""

    name: str
    host: str
    run_id: str
    facts: Mapping[str, str]


def gpu_facts(runs: Sequence[RunFolder]) -> list[GpuFacts]:
    """Every GPU that a run names or has rows of."""
    return [_facts(run, uuid) for run in runs for uuid in _uuids(run)]


def _uuids(run: RunFolder) -> list[str]:
    named = [str(gpu["uuid"]) for gpu in _gpus(run) if gpu.get("uuid")]
    return list(dict.fromkeys([*named, *column(run.timings, "gpu_uuid")]))


def _gpus(run: RunFolder) -> Sequence[Gpu]:
    return [gpu for gpu in run.meta.get("gpus") or () if isinstance(gpu, dict)]


def _facts(run: RunFolder, uuid: str) -> GpuFacts:
    gpu = next((gpu for gpu in _gpus(run) if gpu.get("uuid", "") == uuid), {})
    arms = [arm for arm in run.timings if arm.gpu_uuid == uuid]
    facts = {**dict(_hardware(gpu)), **dict(_proof(gpu)), **dict(_sight(run, uuid, arms)), **dict(_work(gpu, arms))}
    name = str(gpu.get("name") or next((arm.gpu for arm in arms), "") or uuid)
    return GpuFacts(name=name, host=run.host, run_id=run.run_id, facts=facts)


def _hardware(gpu: Gpu) -> Iterator[tuple[str, str]]:
    units = {
        "target": ("Target", ""),
        "driver": ("Driver", ""),
        "power_limit_w": ("Power limit", "W"),
        "largest_sm_mhz": ("Largest SM clock", "MHz"),
    }
    for key, (label, unit) in units.items():
        if gpu.get(key):
            yield label, _figure(gpu[key], unit)
    for key, label in (("memory_bytes", "Memory"), ("l2_bytes", "L2 cache")):
        if gpu.get(key):
            size = gpu[key] / 2**20
            yield label, f"{size / 1024:.0f} GiB" if size >= 1024 else f"{size:.0f} MiB"
    if gpu.get("copy_gb_s"):
        yield "Copy rate, measured by itself", _figure(gpu["copy_gb_s"], "GB/s")
    if gpu.get("matmul_bf16_tflop_s"):
        yield "Matrix rate (bf16), measured by itself", _figure(gpu["matmul_bf16_tflop_s"], "TFLOP/s")


def _figure(value: object, unit: str) -> str:
    return f"{value:,.0f} {unit}" if isinstance(value, int | float) else str(value)


def _proof(gpu: Gpu) -> Iterator[tuple[str, str]]:
    """The instrument's own proofs, as the run began with them."""
    for proof in gpu.get("proofs") or ():
        if proof["name"].startswith("spin"):
            yield f"Timer, {proof['name']}", proof["found"] if proof["fit"] else f"UNFIT: {proof['found']}"


def _sight(run: RunFolder, uuid: str, arms: Sequence[ArmRecord]) -> Iterator[tuple[str, str]]:
    floors = noise_floors(run.timings)  # rows that another run measured keep that run's id
    floor = floors.get((run.run_id, uuid)) or next((f for (_, gpu), f in floors.items() if gpu == uuid), None)
    if floor is not None:
        spread = f"median {percent(floor.median)}, p95 {percent(floor.p95)}, largest {percent(floor.largest)}"
        yield "Noise floor: the baseline against itself", f"{spread} ({plural(floor.cells, 'cell')})"
    candidates = [arm for arm in arms if arm.role is Role.CANDIDATE]
    if candidates:
        alpha = max(arm.alpha for arm in candidates)
        yield "False alarms", f"at most {percent(alpha)} a cell, over all looks at it"
    seen = sorted(filter(_known, (arm.smallest_detectable for arm in candidates)))
    if seen:
        middle = seen[len(seen) // 2]
        said = f"{percent(middle)} in the median cell, {percent(seen[-1])} in the worst"
        yield "Smallest slow-down it could see", said
    clocks = [arm.clock_mhz for arm in arms if arm.clock_mhz]
    if clocks:
        yield "SM clock while timing", f"{min(clocks):,.0f} to {max(clocks):,.0f} MHz"


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _work(gpu: Gpu, arms: Sequence[ArmRecord]) -> Iterator[tuple[str, str]]:
    cells = {(arm.case, arm.params, arm.baseline) for arm in arms}
    if cells:
        yield "Timed", f"{plural(len(cells), 'cell')}, {plural(len(arms), 'arm')}"
    wall, spent = gpu.get("timing_wall_s"), gpu.get("arms_gpu_s")
    if wall:
        apart = wall - (gpu.get("flushes_gpu_s") or 0.0)
        share = f", {spent / apart:.0%} of it in arms, flushes apart".replace("%", " %") if spent else ""
        yield "Time of the stage", f"{duration(wall)}{share}"
