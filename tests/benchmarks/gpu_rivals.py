"""One pass of another timer over cells, in this process: what :mod:`gpu_aa` compares ours with.

    python tests/benchmarks/gpu_rivals.py do_bench|cuda-bench CELLS.json RESULT.json SECONDS

``do_bench`` is Triton's own (its median; the mean is its default, and worse); ``cuda-bench`` is NVIDIA's nvbench.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from matrix.case import Params
from matrix.worker import cases
from matrix.worker.seeds import inputs_of

_STREAM_CALLS = 3


class Pass:
    """The cells in order, until the time is up."""

    def __init__(self, cells: list[dict[str, Any]], seconds: float) -> None:
        self.cells, self.deadline = cells, time.monotonic() + seconds
        self.results: dict[str, dict[str, Any]] = {}

    def call(self, cell: dict[str, Any]) -> Any:
        """The cell's call, its kernels compiled."""
        case, params = cases.find(cell["path"], cell["case"]), Params(cell["params"])
        inputs = inputs_of(case, params, device="cuda")

        def call() -> object:
            return cases.call(case.run, inputs, params)

        call()
        torch.cuda.synchronize()
        return call

    @property
    def over(self) -> bool:
        return time.monotonic() > self.deadline

    def do_bench(self) -> None:
        from triton.testing import do_bench

        for cell in self.cells:
            if self.over:
                return
            began = time.monotonic()
            try:
                call = self.call(cell)
                timing = time.monotonic()
                us = 1e3 * do_bench(call, return_mode="median")
                self.results[cell["id"]] = {"us": us, "timing_s": time.monotonic() - timing}
            except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
                self.results[cell["id"]] = {"error": repr(error)[:300]}
            self.results[cell["id"]]["wall_s"] = time.monotonic() - began
            call = None
            torch.cuda.empty_cache()

    def cuda_bench(self, folder: Path) -> None:
        from cuda import bench

        for number, cell in enumerate(self.cells):
            bench.register(self._benchmark(cell)).set_name(f"cell{number}")
        report = folder / "nvbench.json"
        bench.run_all_benchmarks(["gpu_rivals", "--devices", "0", "--quiet", "--json", str(report)])
        for found in json.loads(report.read_text())["benchmarks"]:
            cell = self.cells[int(found["name"].removeprefix("cell"))]
            for state in found["states"]:
                if not state["is_skipped"]:
                    self.results[cell["id"]].update(_summaries(state))

    def _benchmark(self, cell: dict[str, Any]) -> Any:
        def benchmark(state: Any) -> None:
            if self.over:
                state.skip("out of time")
                return
            began = time.monotonic()
            self.results[cell["id"]] = result = {}
            try:
                call = self.call(cell)
                stream = torch.cuda.ExternalStream(state.get_stream().addressof())
                with torch.cuda.stream(stream):
                    # What the allocator asks of the driver would wait for nvbench's blocking kernel for ever.
                    for _ in range(_STREAM_CALLS):
                        call()
                torch.cuda.synchronize()

                def launch(_: Any) -> None:
                    with torch.cuda.stream(stream):
                        call()

                timing = time.monotonic()
                state.exec(launch, batched=False)
                result["timing_s"] = time.monotonic() - timing
            except Exception as error:  # noqa: BLE001 - whatever a case raises is its result
                result["error"] = repr(error)[:300]
                state.skip("failed")
            result["wall_s"] = time.monotonic() - began
            call = launch = None
            torch.cuda.empty_cache()

        return benchmark


def _summaries(state: dict[str, Any]) -> dict[str, float]:
    """Median and mean of nvbench's cold GPU times in us, and how many samples."""
    values = {
        summary["tag"]: float(item["value"])
        for summary in state["summaries"]
        for item in summary.get("data", ())
        if item["name"] == "value"
    }
    mean = 1e6 * values["nv/cold/time/gpu/mean"]
    median = 1e6 * values.get("nv/cold/time/gpu/median", mean / 1e6)
    return {"us": median, "mean_us": mean, "samples": values.get("nv/cold/sample_size", 0.0)}


def main(method: str, cells: str, result: str, seconds: str) -> None:
    work = Pass(json.loads(Path(cells).read_text()), float(seconds))
    try:
        if method == "do_bench":
            work.do_bench()
        else:
            work.cuda_bench(Path(result).parent)
    finally:
        Path(result).write_text(json.dumps(work.results))


if __name__ == "__main__":
    main(*sys.argv[1:])
