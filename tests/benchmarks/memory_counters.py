"""Predicted memory traffic against a GPU's own counters, kernel by kernel, with Nsight Compute (ncu).

    python -P tests/benchmarks/memory_counters.py measure OUT [--python 3.5.1=/path/to/python ...] [--cases GLOB]
    python -P tests/benchmarks/memory_counters.py table OUT [OUT ...]

``measure`` runs every built-in case's first timing point under ``ncu --clock-control none`` in each interpreter
given (this one where none is), and keeps PTX, launches and counters as JSON in OUT. ``table`` evaluates the
PTX and prints both figures, their errors, and how ratios between the interpreters agree. An autotuned kernel
runs in its first configuration. Needs a GPU whose counters this user may read.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ROOT / "kernels"
COUNTERS = {
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_read": "lts__t_sectors_op_read.sum",
    "l2_write": "lts__t_sectors_op_write.sum",
    "dram_bytes": "dram__bytes.sum",
    "instructions": "smsp__inst_executed.sum",
    "time_ns": "gpu__time_duration.sum",
}
_CASE_TIMEOUT_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measure_ = commands.add_parser("measure")
    measure_.add_argument("out", type=Path)
    measure_.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    measure_.add_argument("--cases", default="*")
    launch_ = commands.add_parser("launch")
    launch_.add_argument("out", type=Path)
    launch_.add_argument("file")
    launch_.add_argument("case")
    table_ = commands.add_parser("table")
    table_.add_argument("out", type=Path, nargs="+")
    given = parser.parse_args()
    match given.command:
        case "measure":
            measure(
                given.out, dict(item.split("=", 1) for item in given.python) or {"host": sys.executable}, given.cases
            )
        case "launch":
            launch(given.out, given.file, given.case)
        case _:
            table([json.loads(path.read_text()) for folder in given.out for path in sorted(folder.glob("*.json"))])


def measure(out: Path, interpreters: dict[str, str], glob: str) -> None:
    """Every case in every interpreter, each in a process of its own under ncu."""
    out.mkdir(parents=True, exist_ok=True)
    for name, python in interpreters.items():
        listed = _run([python, "-P", __file__, "launch", "-", "-", glob])
        for file, case in json.loads(listed.stdout.splitlines()[-1]):
            print(f"{name} {case}: {_measured(out / f'{name}-{case}.json', name, python, file, case)}", flush=True)


def _measured(kept: Path, name: str, python: str, file: str, case: str) -> str:
    """Launch one case under ncu and keep its counters; what came of it, in words."""
    command = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--profile-from-start", "off", "--metrics", ",".join(COUNTERS.values())]
    try:
        done = _run([*command, python, "-P", __file__, "launch", str(kept), file, case])
    except subprocess.TimeoutExpired:
        kept.unlink(missing_ok=True)
        return f"no counters after {_CASE_TIMEOUT_S} s"
    if done.returncode or not kept.exists():
        kept.unlink(missing_ok=True)
        return (done.stderr or done.stdout).strip()[-300:]
    found = json.loads(kept.read_text())
    found["counters"] = list(_counters(done.stdout))
    kept.write_text(json.dumps({"environment": name, "case": case, **found}))
    return f"{len(found['launches'])} launches, {len(found['counters'])} counted"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_CASE_TIMEOUT_S, check=False
    )


def launch(out: Path, file: str, name: str) -> None:
    """Inside an environment: run the case once to compile, then once for ncu; keep what was launched."""
    from matrix.worker import cases

    if file == "-":
        found = [(str(path), case.name) for path in sorted(CASES.glob("*.py")) for case in _importable(cases, path)]
        print(json.dumps([item for item in found if fnmatch.fnmatchcase(item[1], name)]))
        return
    import torch

    from matrix.case import Params
    from matrix.worker.inputs import Make

    case = cases.find(file, name)
    point = Params(dict(case.points("timing")[0]))
    inputs = case.inputs(Make(f"{name}/counters", "cuda"), point)
    _tune_nothing()
    cases.call(case.run, inputs, point)
    torch.cuda.synchronize()
    launches: list[dict[str, Any]] = []
    with _recorded(launches):
        torch.cuda.cudart().cudaProfilerStart()
        cases.call(case.run, inputs, point)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
    major, minor = torch.cuda.get_device_capability()
    out.write_text(json.dumps({"target": f"sm_{major}{minor}", "params": dict(point), "launches": launches}))


def _importable(cases: Any, path: Path) -> list[Any]:
    try:
        return [case for case in cases.cases_of(cases.load(str(path))) if case.points("timing")]
    except Exception as error:  # noqa: BLE001 - a case of another release: what it lacks is not this table's business
        print(f"{path.name}: {error}", file=sys.stderr)
        return []


def _tune_nothing() -> None:
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    Autotuner.run = first


class _recorded:
    """Keeps every launch with its compiled kernel, in order, and lets it happen."""

    def __init__(self, launches: list[dict[str, Any]]) -> None:
        self._launches = launches

    def __enter__(self) -> None:
        from triton.runtime.jit import JITFunction

        from matrix.worker.compile import _signature
        from matrix.worker.launches import _arguments, _grid

        self._class, self._run = JITFunction, JITFunction.run
        original, launches = self._run, self._launches

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            compiled = original(function, *args, grid=grid, warmup=warmup, **kwargs)
            bound = {**dict(zip(function.arg_names, args)), **kwargs}
            metadata = compiled.metadata
            launches.append(
                {
                    "kernel": metadata.name,
                    "num_warps": metadata.num_warps,
                    "grid": _grid(grid, bound),
                    "arguments": _arguments([(n, bound[n]) for n in function.arg_names if n in bound]),
                    "signature": _signature(compiled)[1],
                    "ptx": compiled.asm["ptx"],
                }
            )
            return compiled

        JITFunction.run = run

    def __exit__(self, *_: object) -> None:
        self._class.run = self._run


def _counters(text: str) -> Iterator[dict[str, Any]]:
    """The rows of ncu's raw page; what it says beside them is left out."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(lines)
    for row in rows:
        if row.get("ID", "").strip():  # the row of units has none
            values = {name: row.get(counter, "").replace(",", "") for name, counter in COUNTERS.items()}
            yield {"kernel": row["Kernel Name"].split("(")[0], **{k: float(v) for k, v in values.items() if v}}


def table(measured: list[dict[str, Any]]) -> None:
    """Both figures of every launch, the spread of their errors, and whether ratios agree in direction."""
    rows = [row for item in measured for row in _rows(item)]
    heads = ("wavefronts", "l2_read", "l2_write", "dram_bytes")
    print("environment case kernel unknown | " + " | ".join(f"{h} predicted measured" for h in heads) + " | us est ncu")
    for row in rows:
        figures = " | ".join(f"{row['predicted'][h]:.0f} {row['measured'].get(h, float('nan')):.0f}" for h in heads)
        times = f"{row['predicted']['us']:.1f} {row['measured'].get('time_ns', float('nan')) / 1e3:.1f}"
        print(f"{row['environment']} {row['case']} {row['kernel']} {row['unknown']:.2f} | {figures} | {times}")
    for head in heads:
        _spread(rows, head)
    _directions(rows)


def _rows(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from matrix.memory.cost import estimate_us
    from matrix.memory.evidence import memory_evidence

    names = {one["kernel"] for one in item["launches"]}
    counted = [row for row in item["counters"] if row["kernel"] in names]
    for index, (one, counters) in enumerate(zip(item["launches"], counted)):
        if one["kernel"] != counters["kernel"]:
            print(f"{item['environment']} {item['case']}: launches and counters do not match", file=sys.stderr)
            return
        threads = 32 * one["num_warps"]
        found = memory_evidence(
            one["ptx"], one["arguments"], one["grid"], item["target"], signature=one["signature"], threads=threads
        )
        blocks = one["grid"][0] * one["grid"][1] * one["grid"][2]
        busy = found.busy_us
        predicted = {
            "wavefronts": found.shared_wavefronts * blocks,
            "l2_read": found.global_load_sectors * blocks,
            "l2_write": found.global_store_sectors * blocks,
            "dram_bytes": found.dram_bytes,
            "us": estimate_us(busy),
        }
        yield {
            **{name: item[name] for name in ("environment", "case")},
            "kernel": one["kernel"],
            "index": index,
            "unknown": found.unknown,
            "predicted": predicted,
            "measured": counters,
        }


def _spread(rows: list[dict[str, Any]], head: str) -> None:
    pairs = [(r["predicted"][head], r["measured"].get(head, 0.0)) for r in rows if not r["unknown"]]
    errors = [abs(predicted - measured) / measured for predicted, measured in pairs if measured]
    if errors:
        within = sum(error <= 0.15 for error in errors) / len(errors)
        print(f"{head}: {len(errors)} kernels, median error {statistics.median(errors):.1%}, within 15 %: {within:.0%}")


def _directions(rows: list[dict[str, Any]]) -> None:
    """Ratios between environments: agreement where the clock moved, alarms of the rule where it did not."""
    by_kernel: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_kernel.setdefault((row["case"], row["kernel"], row["index"]), {})[row["environment"]] = row
    moved, agreed, still, alarms = 0, 0, 0, 0
    for key, found in by_kernel.items():
        for one, other in itertools.combinations(found.values(), 2):
            times = one["measured"].get("time_ns", 0.0), other["measured"].get("time_ns", 0.0)
            if not all(times) or not one["predicted"]["us"] or one["unknown"] or other["unknown"]:
                continue
            measured, predicted = times[1] / times[0], other["predicted"]["us"] / one["predicted"]["us"]
            if abs(measured - 1) > 0.05:
                moved += 1
                right = (predicted > 1) == (measured > 1) and predicted != 1
                agreed += right
                if not right:
                    ways = f"measured x{measured:.2f}, predicted x{predicted:.2f}"
                    print(f"disagrees: {key} {one['environment']} to {other['environment']}: {ways}")
            elif abs(measured - 1) < 0.02:
                still += 1
                alarms += max(predicted, 1 / predicted) >= 1.5
    print(f"moved by more than 5 %: {moved}, of them predicted in direction: {agreed}")
    print(f"moved by less than 2 %: {still}, of them flagged: {alarms}")


if __name__ == "__main__":
    main()
