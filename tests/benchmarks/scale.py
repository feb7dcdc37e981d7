"""A million cells: how long judging, the report and a trend take, in how much memory, and how large the pages get.

    PYTHONPATH=.:tests python -P tests/benchmarks/scale.py [--nights 52] [--folder FOLDER] [--jobs 2]

Every night is a run folder of 40 cases x 6 shapes x 4 targets x 20 environments = 19,200 cells, each compiled (with
a kernel's evidence) and timed beside its baseline and a control: 52 nights are a million cells. A candidate's code
differs in two cells of three; one cell in a hundred is slower, one in two hundred spills, one in a thousand fails.
Judged are all nights, a process for each core, verdicts written, and added to a history; the report is of the last
night, with the trend of all of them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from judged import kernel

from matrix.judging.compare import judge_again
from matrix.judging.thresholds import Thresholds
from matrix.records import KernelFacts
from matrix.storage.store import CELLS, EVIDENCE, TIMINGS, write_verdicts

if TYPE_CHECKING:
    pass

CASES = [f"case_{n:02d}" for n in range(40)]
SHAPES = [f"rows={64 << n},cols=4096,dtype=fp16" for n in range(6)]
TARGETS = ["sm_80", "sm_90", "sm_100", "sm_120"]
ENVIRONMENTS = [f"triton3.{n}.0-torch2.13.0" for n in range(20)]
BASELINE = ENVIRONMENTS[0]
FIRST = dt.datetime(2026, 1, 1, 2, tzinfo=dt.timezone.utc)
CHANGED, SLOWER, SPILLS, FAILS = 0.66, 0.01, 0.005, 0.001


def build(folder: Path, night: int) -> Path:
    """One night's run folder."""
    random = np.random.default_rng(night)
    path = folder / f"night-{night:03d}"
    path.mkdir(parents=True)
    index = pd.MultiIndex.from_product([CASES, SHAPES, TARGETS, ENVIRONMENTS])
    frame = index.to_frame(index=False, name=["case", "params", "target", "environment"])
    frame["run_id"], frame["host"] = path.name, "fleet"
    frame["triton_version"] = frame["environment"].str.extract(r"triton([\d.]+)-", expand=False)
    frame["torch_version"] = "2.13.0"
    frame["cell_id"] = frame["environment"] + "/" + frame["target"] + "/" + frame["case"] + ":" + frame["params"]
    candidate = (frame["environment"] != BASELINE).to_numpy()
    draw = random.random((4, len(frame)))
    changed = candidate & (draw[0] < CHANGED)
    spills, fails = changed & (draw[1] < SPILLS), candidate & (draw[2] < FAILS)
    slower = changed & (draw[3] < SLOWER)
    _cells(path, frame, fails, night)
    _evidence(path, frame[~fails], changed[~fails], spills[~fails], random)
    _timings(path, frame[~fails], slower[~fails], random)
    _meta(path, night)
    write_verdicts(path, [])
    return path


def _cells(path: Path, frame: pd.DataFrame, fails: np.ndarray, night: int) -> None:
    rows = []
    for stage in ("compile", "timing"):
        own = frame.assign(stage=stage, outcome="passed", reason="", detail="", seconds=1.0, cached=False, expected="")
        own.loc[fails, "outcome"] = "compile_error" if stage == "compile" else "not_run"
        own.loc[fails, "reason"] = "operand type mismatch" if stage == "compile" else "not compiled"
        rows.append(own)
    imports = frame.drop_duplicates(["case", "environment"]).assign(stage="import", outcome="passed", target="cpu")
    imports = imports.assign(params="", reason="", detail="", seconds=1.0, cached=False, expected="")
    imports["cell_id"] = imports["environment"] + "/cpu/" + imports["case"]
    _write(
        path / "cells.parquet", pd.concat([imports, *rows]).assign(started_at=FIRST + dt.timedelta(days=night)), CELLS
    )


def _evidence(
    path: Path, frame: pd.DataFrame, changed: np.ndarray, spills: np.ndarray, random: np.random.Generator
) -> None:
    one = kernel(BASELINE)
    constant = {f.name: getattr(one, f.name) for f in fields(one) if f.name not in {*frame.columns, "facts", "seconds"}}
    constant |= {f.name: getattr(one.facts, f.name) for f in fields(KernelFacts)}
    constant["options"] = {"num_warps": 4, "num_stages": 3, "arch": "sm90", "extern_libs": [["libdevice", "x" * 80]]}
    constant["signature"] = dict.fromkeys(("x", "y", "rows", "cols"), "*fp16")
    text = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in constant.items()}
    own = frame.assign(**text)
    which = np.where(changed, own["environment"], "same")
    code = own["case"] + own["params"] + own["target"] + which
    for name in ("ttir", "ttgir", "llir", "ptx", "cubin", "sass"):
        own[f"{name}_hash"] = name + code
    own["registers"] = 32 + (pd.util.hash_array(code.to_numpy()) % 5).astype(int)
    own["stack_bytes"] = np.where(spills, 64, 0)
    own["code_bytes"] = 4096 + 128 * (own["registers"] - 32)
    own["instructions"] = 500 + (pd.util.hash_array(code.to_numpy()) % 997).astype(int)  # hardly two codes are alike
    stages = random.gamma(20, 0.01, (5, len(own)))
    for stage, seconds in zip(("ttir", "ttgir", "llir", "ptx", "cubin"), stages, strict=True):
        own[f"seconds_{stage}"] = seconds
    own["seconds_total"] = stages.sum(axis=0)
    _write(path / "evidence.parquet", own, EVIDENCE)


def _timings(path: Path, frame: pd.DataFrame, slower: np.ndarray, random: np.random.Generator) -> None:
    """All environments of a cell interleaved, the baseline once more as the control."""
    base = frame[(frame["environment"] == BASELINE).to_numpy()]
    arms = []
    beside = (frame["environment"] != BASELINE).to_numpy()
    truth = np.where(slower[beside], 1.12, 1.0)
    for role, own, ratio in (
        ("baseline", base, None),
        ("control", base, np.ones(len(base))),
        ("candidate", frame[beside], truth),
    ):
        arms.append(_arms(own, role, ratio, random))
    _write(path / "timings.parquet", pd.concat(arms), TIMINGS)


def _arms(own: pd.DataFrame, role: str, truth: np.ndarray | None, random: np.random.Generator) -> pd.DataFrame:
    values: dict[str, object] = {field.name: None if field.nullable else _EMPTY[str(field.type)] for field in TIMINGS}
    values |= {"gpu": "NVIDIA H200", "role": role, "baseline": BASELINE, "cache": "cold", "calls": 1, "samples": 240}
    values |= {"rounds": 24, "blocks": 12, "median_us": 100.0, "p20_us": 99.0, "p80_us": 101.0, "clock_mhz": 1980.0}
    values |= {"margin": 0.005, "alpha": 0.005, "configurations": "{}", "problems": "[]", "warnings": "[]"}
    values |= {"stopped": "decided", "method": "synthetic", "launch_us": 20.0, "method_version": 2, "parameters": "{}"}
    own = own.assign(**{name: value for name, value in values.items() if name not in own.columns})
    own["gpu_uuid"] = "GPU-" + own["target"]
    if truth is None:
        return own
    error = random.gamma(20, 0.00005, len(own))
    ratio = truth * np.exp(random.normal(0, np.hypot(error, 0.0015)))
    reach = 3.5 * error
    figures = {"ratio": ratio, "ratio_low": ratio * np.exp(-reach), "ratio_high": ratio * np.exp(reach)}
    figures |= {"cycles_ratio": ratio, "standard_error": error, "cycles_error": error, "looks": 6}
    decision = np.where(truth > 1, "slower", "same")
    names = ("decision", "decision_in_time", "decision_in_cycles")
    return own.assign(**figures, smallest_detectable=0.01, median_us=100 * ratio, **dict.fromkeys(names, decision))


_EMPTY = {"string": "", "int64": 0, "double": 0.0, "bool": False}


def _meta(path: Path, night: int) -> None:
    entries = [
        {"id": name, "triton": name.split("-")[0].removeprefix("triton"), "torch": "2.13.0"} for name in ENVIRONMENTS
    ]
    request = {"baseline": BASELINE, "candidates": ENVIRONMENTS[1:], "targets": TARGETS, "cases": []}
    request |= {"stages": ["import", "compile", "timing"], "kernels": []}
    began = FIRST + dt.timedelta(days=night)
    case = {"digest": "", "tags": [], "targets": [], "expectations": []}
    meta: dict[str, object] = {
        "schema": 1, "run_id": path.name, "state": "complete", "started_at": began.isoformat(),
        "finished_at": (began + dt.timedelta(hours=3)).isoformat(), "request": request, "environments": entries,
        "host": {"name": "fleet"}, "thresholds": asdict(Thresholds()), "tools": {}, "gpus": [], "not_run": [],
        "exit_code": 1, "cases": [{"name": name, "file": f"{name}.py", **case} for name in CASES],
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(meta))


def _write(path: Path, frame: pd.DataFrame, schema: pa.Schema) -> None:
    for field in schema:
        if field.name not in frame.columns:
            frame = frame.assign(**{field.name: None if field.nullable else _EMPTY[str(field.type)]})
    table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    pq.write_table(table.replace_schema_metadata(schema.metadata), path, compression="zstd")


def judge_night(path: Path) -> tuple[int, int, float]:
    """Judge one night, and keep its verdicts: rows, kilobytes that the process needed so far, processor seconds."""
    began = time.process_time()
    run, _ = judge_again([path], BASELINE, ENVIRONMENTS[1:], Thresholds())
    write_verdicts(path, run.verdicts)
    return len(run.verdicts), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=52)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        measure(folder, given.nights, given.jobs)
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path, nights: int, jobs: int) -> None:
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        began = time.perf_counter()
        paths = list(pool.map(partial(build, folder), range(nights)))
        size = sum(file.stat().st_size for path in paths for file in path.iterdir())
        cells = nights * len(CASES) * len(SHAPES) * len(TARGETS) * len(ENVIRONMENTS)
        print(f"built: {cells:,} cells in {nights} nights, {size / 2**20:.0f} MiB; {time.perf_counter() - began:.0f} s")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        began = time.perf_counter()
        found = list(pool.map(judge_night, paths))
        seconds = time.perf_counter() - began
    largest = jobs * max(kilobytes for _, kilobytes, _ in found) / 2**20
    rows, spent = sum(number for number, _, _ in found), sum(seconds for _, _, seconds in found)
    each = sorted(seconds for _, _, seconds in found)
    print(
        f"judged: {rows:,} verdicts in {seconds:.1f} s, {largest:.2f} GiB at most; {spent:.0f} s of processor time, "
        f"{each[len(each) // 2]:.1f} s for the median night, {each[-1]:.1f} s for the first"
    )
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        list(pool.map(partial(remember, folder / "history"), paths))
    for what, do in (("report of the last night", report_night), ("trend of all nights", trend_of_nights)):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            seconds, size, kilobytes = pool.submit(do, folder, paths[-1]).result()
        print(f"{what}: {seconds:.1f} s, {size / 1e6:.2f} MB, {kilobytes / 2**20:.2f} GiB")


def remember(history: Path, night: Path) -> None:
    """Add a night to the history, as `run --history` does."""
    from matrix.nights.history import History
    from matrix.storage.runfolder import load

    History.of(str(history)).append(load(night))


def report_night(folder: Path, night: Path) -> tuple[float, int, int]:
    """The report as a run with a history writes it: seconds, bytes, kilobytes of memory."""
    from matrix.judging.compare import garbage_uncollected
    from matrix.nights.history import History, write_copy
    from matrix.reporting.report import write_page
    from matrix.storage.runfolder import load

    write_copy(night, History.of(str(folder / "history")).recent(load(night)))
    began = time.perf_counter()
    with garbage_uncollected():
        page = write_page(load(night))
    return time.perf_counter() - began, page.stat().st_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def trend_of_nights(folder: Path, _: Path) -> tuple[float, int, int]:
    from matrix.nights.history import History
    from matrix.reporting.report import render_trend

    began = time.perf_counter()
    history = History.of(str(folder / "history"))
    page = render_trend(history.read(), history.address)
    return time.perf_counter() - began, len(page.encode()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
