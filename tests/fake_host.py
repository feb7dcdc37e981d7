"""A host with a GPU that is not there: named by a fake NVML, worked by ``tests/fake_gpu.py``.

The seam is where NVML is opened and which script a worker of kind ``gpu`` starts with; everything between
them is the product. No figure that comes out means anything.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from worker_client import FAKE_GPU

from matrix.gpus.nvml import Gpu, Reading
from matrix.gpus.stages import GpuHost
from matrix.gpus.timing import TimingPlan
from matrix.judging.statistics import StoppingRule
from matrix.running.workers import WorkerHome

if TYPE_CHECKING:
    import pytest

    from matrix.running.process import WorkerSpec

# As much of a timing as there can be without a GPU, in as little time.
PLAN = TimingPlan(
    rule=StoppingRule(looks=(2,)),
    rounds_per_block=2,
    places=2,
    warm_rounds=1,
    most_samples=10,
    # The fake GPU waits for the interpreter: ten samples, however long they take.
    round_us=1e9,
    budget_us=1e12,
    overhead_calls=5,
    overhead_us=1e12,
)
READING = Reading(sm_mhz=1980, memory_mhz=3201, power_w=400.0, temperature_c=50, reasons=(), throttled_ns={})


class FakeLibrary:
    """As much of :class:`matrix.gpus.nvml.Nvml` as a run uses."""

    def reading(self, uuid: str) -> Reading:
        assert uuid.startswith("GPU-fake")
        return READING


def fake_host(count: int = 1) -> GpuHost:
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-fake-{index}",
            name="fake",
            capability=(9, 0),
            memory_bytes=1 << 30,
            driver="0",
            largest_sm_mhz=1980,
            power_limit_w=700.0,
        )
        for index in range(count)
    )
    return GpuHost(gpus=gpus, nvml=FakeLibrary())  # type: ignore[arg-type]  # the seam


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers of kind ``gpu`` start with the fake device, which has no bandwidth to measure."""
    monkeypatch.setattr("matrix.gpus.stations._figures", lambda *_: {"copy_gb_s": 4000.0, "matmul_bf16_tflop_s": 700.0})
    original = WorkerHome.spec

    def spec(self: WorkerHome, kind: str, target: str = "", **more: Any) -> WorkerSpec:
        found = original(self, kind, target, **more)
        if kind != "gpu":
            return found
        variables = (*found.variables, ("TRITON_INTERPRET", "1"))
        return dataclasses.replace(found, main=FAKE_GPU, variables=variables)

    monkeypatch.setattr(WorkerHome, "spec", spec)
