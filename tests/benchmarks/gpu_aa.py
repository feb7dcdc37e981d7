"""A/A: how far two measurements of the same thing lie apart, by our method and by two others, on one GPU.

    PYTHONPATH=. python tests/benchmarks/gpu_aa.py [--seconds 540] [--out FOLDER] [--methods ours,cuda-bench,do_bench]

Ours interleaves two (and a control) resident workers of this interpreter; the others measure in one fresh process
after the other, as their users do. The figure is |ratio - 1|. Per-cell figures go to FOLDER/aa.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpu_crew import Timed, Workers, percentile, timed_cells, workers

from matrix.gpus.arms import ArmFailed, WorkerArm
from matrix.gpus.timing import TimingPlan, measure
from matrix.judging.statistics import block_values

ARMS = ("baseline", "candidate", "control")
OURS, RIVALS = "ours", ("do_bench", "cuda-bench")
# Of the time, what ours may take; the rivals' two passes share the rest.
OUR_SHARE = 0.5
# GPU time of a cell and arm, at most.
MOST_US = 0.5e6


def ours(cells: list[Timed], bench: Workers, seconds: float) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + seconds
    for cell in cells:
        if time.monotonic() > deadline:
            break
        found[cell.id] = _ours(cell, bench)
        print(f"{cell.id}: {_line(found[cell.id])}", flush=True)
    return found


def _ours(cell: Timed, bench: Workers) -> dict[str, Any]:
    arms = [WorkerArm(name, bench.asks[name], path=cell.path, case=cell.case, params=cell.params) for name in ARMS]
    began = time.monotonic()
    try:
        plan = TimingPlan(budget_us=MOST_US * len(ARMS))
        record = measure(arms[0], [arms[1]], arms[2], read=bench.read, plan=plan)
    except ArmFailed as failure:
        return {"error": str(failure)[:300]}
    finally:
        for arm in arms:
            arm.dismiss()
    ratios = {name: math.exp(float(block_values(record.log_ratios(name)).mean())) for name in ARMS[1:]}
    return {
        "ratio": ratios["candidate"],
        "control_ratio": ratios["control"],
        "us": statistics.median(record.samples_us("baseline", record.judged_cache)),
        "decision": str(record.decisions["candidate"]),
        "blocks": len(record.log_ratios("candidate")),
        "cache": record.judged_cache,
        "calls": record.calls,
        "gpu_s": record.arms_us / 1e6,
        "gpu_s_an_arm": record.arms_us / 1e6 / len(ARMS),
        "flush_s": record.flush_us / 1e6,
        "warmup_s": record.warmup_us / 1e6,
        "setup_s": record.setup_seconds,
        "shared": record.shared,
        "wall_s": time.monotonic() - began,
        "problems": list(record.problems["candidate"]),
        "warnings": list(record.warnings["candidate"]),
    }


def rival(method: str, cells: list[Timed], folder: Path, number: int, seconds: float) -> dict[str, dict[str, Any]]:
    """One pass in a fresh process. Kernels compiled by an earlier pass are not compiled again."""
    listed, result = folder / "cells.json", folder / f"{method}-{number}.json"
    listed.write_text(json.dumps([{**dataclasses.asdict(cell), "id": cell.id} for cell in cells]))
    script = Path(__file__).parent / "gpu_rivals.py"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton")}
    command = [sys.executable, str(script), method, str(listed), str(result), str(seconds)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=seconds + 60
        )
        said = done.stderr[-1500:] if done.returncode else ""
    except subprocess.TimeoutExpired:
        said = "ran out of time"
    if said:
        print(f"{method}, pass {number}: {said}", flush=True)
    return json.loads(result.read_text()) if result.exists() else {}


def paired(passes: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    first, second = passes
    found = {}
    for cell in first.keys() & second.keys():
        one, other = first[cell], second[cell]
        if "us" in one and "us" in other:
            found[cell] = {"ratio": other["us"] / one["us"], "us": one["us"]}
            found[cell] |= {name: one[name] + other[name] for name in ("wall_s", "timing_s") if name in other}
            if "mean_us" in other:
                found[cell]["mean_ratio"] = other["mean_us"] / one["mean_us"]
                found[cell]["gpu_s"] = sum(p["mean_us"] * p["samples"] for p in (one, other)) / 1e6
    return found


def summary(found: dict[str, dict[str, Any]], cells: set[str], figure: str = "ratio") -> dict[str, Any]:
    apart = {cell: abs(found[cell][figure] - 1) for cell in cells if figure in found.get(cell, {})}
    if not apart:
        return {"cells": 0}
    values = list(apart.values())
    return {
        "cells": len(values),
        "median": statistics.median(values),
        "p95": percentile(values, 0.95),
        "max": max(values),
        "worst": max(apart, key=lambda cell: apart[cell]),
        "within_0.25%": sum(value <= 0.0025 for value in values) / len(values),
        "gpu_s_a_cell": statistics.fmean(found[cell].get("gpu_s", math.nan) for cell in apart),
        "wall_s_a_cell": statistics.fmean(found[cell].get("wall_s", math.nan) for cell in apart),
    }


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    return (
        f"{row['ratio'] - 1:+.3%} (control {row['control_ratio'] - 1:+.3%}) {row['us']:.1f} us {row['decision']}"
        f" {row['blocks']} blocks, GPU {row['gpu_s']:.2f} s, wall {row['wall_s']:.2f} s {row['problems'] or ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--methods", default=f"{OURS},{','.join(RIVALS)}")
    asked = parser.parse_args()
    methods, end = asked.methods.split(","), time.monotonic() + asked.seconds
    with workers(*ARMS) as bench:
        gpu = bench.gpu
        cells = timed_cells(gpu.target)
        print(f"{gpu.name}, driver {gpu.driver}: {len(cells)} cells", flush=True)
        share = asked.seconds * (OUR_SHARE if len(methods) > 1 else 1.0)
        found = {OURS: ours(cells, bench, share)} if OURS in methods else {}
    rivals = [method for method in RIVALS if method in methods]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for method in rivals:
            # Two passes of each rival that is still to come.
            left = 2 * (len(rivals) - rivals.index(method))
            each = max(20.0, (end - time.monotonic()) / left)
            passes = [rival(method, cells, folder, number, each) for number in (1, 2)]
            found[method] = paired(passes)
            (asked.out / f"aa-{method}.json").write_text(json.dumps(passes))
    _tell(found, [cell.id for cell in cells], asked.out)


def _tell(found: dict[str, dict[str, dict[str, Any]]], cells: list[str], out: Path) -> None:
    measured = {method: {cell for cell, row in rows.items() if "ratio" in row} for method, rows in found.items()}
    common = set.intersection(*measured.values()) if measured else set()
    summaries = {method: summary(rows, measured[method]) for method, rows in found.items()}
    shared = {method: summary(rows, common) for method, rows in found.items()}
    if OURS in found:
        summaries["ours, control arm"] = summary(found[OURS], measured[OURS], "control_ratio")
    if "cuda-bench" in found:
        summaries["cuda-bench, its mean"] = summary(found["cuda-bench"], measured["cuda-bench"], "mean_ratio")
    for title, rows in (("all cells of each method", summaries), (f"the {len(common)} cells of all methods", shared)):
        print(f"\n{title}: |ratio - 1|")
        for method, row in rows.items():
            if row["cells"]:
                print(
                    f"  {method:22s} {row['cells']:3d} cells  median {row['median']:.3%}  p95 {row['p95']:.3%}"
                    f"  max {row['max']:.3%} ({row['worst']})  within 0.25 % {row['within_0.25%']:.0%}"
                    f"  GPU {row['gpu_s_a_cell']:.2f} s, wall {row['wall_s_a_cell']:.2f} s a cell"
                )
    if OURS in found:
        worse = [
            f"{cell} ({method})"
            for method, rows in found.items()
            for cell in common
            if method != OURS and abs(found[OURS][cell]["ratio"] - 1) > abs(rows[cell]["ratio"] - 1)
        ]
        print(f"\nworse than another method in {len(worse)} places: {', '.join(sorted(worse)) or 'none'}")
    for method, rows in found.items():
        skipped = [cell for cell in cells if cell not in measured[method]]
        print(f"{method}: not measured: {len(skipped)} {skipped}")
        errors = {cell: row["error"] for cell, row in rows.items() if "error" in row}
        for cell, error in errors.items():
            print(f"  {cell}: {error}")
    (out / "aa.json").write_text(json.dumps({"cells": found, "summary": summaries, "common": shared}, indent=1))


if __name__ == "__main__":
    main()
