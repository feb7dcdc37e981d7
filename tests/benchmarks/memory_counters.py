"""What a GPU's own counters say of each launch, with Nsight Compute (ncu), kept for ``memory_agreement.py``.

    python -P tests/benchmarks/memory_counters.py OUT [--python 3.5.1=/path/to/python ...] [--cases GLOB]
        [--file CASES.py ...] [--repeats N]

Every case's first timing point in each interpreter (this one where none is given): of the built-in cases, and of
the case files given. First all interpreters compile side by side, each case in one of several processes, without
ncu. Then one process an interpreter runs every case under ncu, ``--repeats`` times, out of the filled cache. A
case that ends its process loses only itself: the next process goes on behind it. OUT gets, of each such process,
``NAME.N.launches.jsonl`` (PTX, arguments and grid of each launch, in order) and ``NAME.N.csv``, ncu's rows.

An autotuned kernel runs in its first configuration. Needs a GPU whose counters this user may read.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent.parent
BUILTIN = ROOT / "kernels"
# A name that this GPU or this ncu does not know gives no column, and no error.
COUNTERS = {
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "load_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_read": "lts__t_sectors_op_read.sum",
    "l2_write": "lts__t_sectors_op_write.sum",
    "l2_read_l1": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_l1": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "instructions": "smsp__inst_executed.sum",
    "time_ns": "gpu__time_duration.sum",
}
_OPTIONS = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", "all"]
_OPTIONS += ["--profile-from-start", "off", "--target-processes", "application-only"]
_COMPILE_TIMEOUT_S = 180
_COUNT_TIMEOUT_S = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--cases", default="*", metavar="GLOB")
    parser.add_argument("--file", action="append", default=[], metavar="CASES.py")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.out, json.loads(given.child))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    interpreters = dict(item.split("=", 1) for item in given.python) or {"host": sys.executable}
    request = {
        "files": [str(path) for path in sorted(BUILTIN.glob("*.py"))] + [str(Path(f).resolve()) for f in given.file],
        "glob": given.cases,
    }
    with tempfile.TemporaryDirectory() as cache:
        measure(given.out, interpreters, request, given.repeats, Path(cache))


def measure(out: Path, interpreters: dict[str, str], request: dict[str, Any], repeats: int, cache: Path) -> None:
    """Compile everything in all interpreters at once, then count in one after the other."""
    shards = max(1, (os.cpu_count() or 1) // len(interpreters))
    began = time.monotonic()
    with ThreadPoolExecutor(len(interpreters) * shards) as pool:
        jobs = {
            (name, shard): pool.submit(
                _to_the_end,
                out / f"{name}.compile{shard}",
                python,
                {**request, "repeats": 0, "shard": [shard, shards], "skip": []},
                cache / name,
            )
            for name, python in interpreters.items()
            for shard in range(shards)
        }
        failed = {name: [] for name in interpreters}
        for (name, _), job in jobs.items():
            failed[name] += job.result()
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    for name, python in interpreters.items():
        began = time.monotonic()
        skip = [case for case, _ in failed[name]]
        lost = _to_the_end(
            out / name,
            python,
            {**request, "repeats": repeats, "shard": [0, 1], "skip": skip},
            cache / name,
            under_ncu=True,
        )
        rows = sum(path.read_text().count('\n"') for path in out.glob(f"{name}.*.csv"))
        print(f"{name}: {rows} rows in {time.monotonic() - began:.0f} s", flush=True)
        for case, reason in [*failed[name], *lost]:
            print(f"{name} {case}: {reason}", flush=True)
        if not rows:
            said = [path.read_text()[-1000:] for suffix in ("csv", "log") for path in out.glob(f"{name}.0.{suffix}")]
            raise SystemExit("\n".join([f"{name}: no counters, so the rest is left out", *said]))


def _to_the_end(
    stem: Path, python: str, request: dict[str, Any], cache: Path, *, under_ncu: bool = False
) -> list[tuple[str, str]]:
    """Processes one after the other until every case was begun; the cases that failed, each with its reason."""
    failed: list[tuple[str, str]] = []
    done: list[str] = list(request["skip"])
    for attempt in range(100):
        part = stem.with_name(f"{stem.name}.{attempt}")
        command = [python, "-P", __file__, f"{part}.launches.jsonl", "--child", json.dumps({**request, "skip": done})]
        if under_ncu:
            metrics = ",".join(COUNTERS.values())
            command = ["ncu", *_OPTIONS, "--log-file", f"{part}.csv", "--metrics", metrics, *command]
        timeout = _COUNT_TIMEOUT_S if under_ncu else _COMPILE_TIMEOUT_S
        ended = _run(command, cache, Path(f"{part}.log"), timeout)
        begun, unfinished, failures = _progress(Path(f"{part}.launches.jsonl"))
        failed += failures
        if unfinished:
            failed.append((unfinished, f"ended its process: {ended}"))
        done += begun
        if ended == "exit 0" or not begun:
            if ended != "exit 0":
                failed.append(("*", f"{ended}, see {part}.log"))
            return failed
    return failed


def _run(command: list[str], cache: Path, log: Path, timeout: float) -> str:
    """How the process ended, in words; what it printed is in the log."""
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(cache)}
    with log.open("w") as printed:
        try:
            code = subprocess.run(
                command, env=environment, stdout=printed, stderr=subprocess.STDOUT, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return f"stopped after {timeout} s"
    return f"exit {code}"


def _progress(path: Path) -> tuple[list[str], str, list[tuple[str, str]]]:
    """The cases begun, the one begun last and not ended, and those that raised with their reason."""
    begun: list[str] = []
    ended: set[str] = set()
    failures: list[tuple[str, str]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        match json.loads(line):
            case {"begin": name}:
                begun.append(name)
            case {"end": name, "failure": reason}:
                ended.add(name)
                if reason:
                    failures.append((name, reason))
    return begun, "".join(name for name in begun[-1:] if name not in ended), failures


def child(out: Path, request: dict[str, Any]) -> None:
    """Inside an environment: each case once to compile, then ``repeats`` times before the profiler."""
    import torch
    import triton

    major, minor = torch.cuda.get_device_capability()
    about = {"target": f"sm_{major}{minor}", "triton": triton.__version__}
    shard, shards = request["shard"]
    _tune_nothing()
    with out.open("w", buffering=1) as kept:
        _keep(kept, {"counters": COUNTERS})
        for case in list(_cases(request))[shard::shards]:
            if case.name in request["skip"]:
                continue
            _keep(kept, {"begin": case.name})
            failure = ""
            try:
                _launch(
                    case, request["repeats"], lambda one, name=case.name: _keep(kept, {**about, "case": name, **one})
                )
            except Exception as error:  # noqa: BLE001 - whatever a case raises is that case's
                failure = f"{type(error).__name__}: {error}"[:500]
            _keep(kept, {"end": case.name, "failure": failure})
            torch.cuda.synchronize()  # raises where the case broke the context: the next process goes on
            torch.cuda.empty_cache()


def _keep(kept: TextIO, line: dict[str, Any]) -> None:
    kept.write(json.dumps(line) + "\n")


def _cases(request: dict[str, Any]) -> Iterator[Any]:
    from matrix.worker import cases

    for path in request["files"]:
        try:
            found = cases.cases_of(cases.load(path))
        except Exception as error:  # noqa: BLE001 - a case file of another release, or of a package not there
            print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        yield from (case for case in found if case.points("timing") and fnmatch.fnmatchcase(case.name, request["glob"]))


def _launch(case: Any, repeats: int, keep: Callable[[dict[str, Any]], None]) -> None:
    import torch

    from matrix.case import Params
    from matrix.worker import cases
    from matrix.worker.inputs import Make

    point = Params(dict(case.points("timing")[0]))
    inputs = list(case.inputs(Make(f"{case.name}/counters", "cuda"), point))
    cases.call(case.run, inputs, point)
    torch.cuda.synchronize()
    for repeat in range(repeats):
        with _profiled(keep, {"params": dict(point), "repeat": repeat}):
            cases.call(case.run, inputs, point)
            torch.cuda.synchronize()


def _tune_nothing() -> None:
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return run(self, *args, **kwargs)

    Autotuner.run = first


class _profiled:
    """Lets the profiler see Triton's launches and nothing else, and keeps each with its compiled kernel."""

    def __init__(self, keep: Callable[[dict[str, Any]], None], about: dict[str, Any]) -> None:
        self._keep, self._about = keep, about

    def __enter__(self) -> None:
        import torch
        from triton.runtime.jit import JITFunction

        from matrix.worker.compile import _signature
        from matrix.worker.launches import _arguments, _grid

        self._class, self._run = JITFunction, JITFunction.run
        original, keep, about, profiler = self._run, self._keep, self._about, torch.cuda.cudart()

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            torch.cuda.synchronize()
            profiler.cudaProfilerStart()
            compiled = original(function, *args, grid=grid, warmup=warmup, **kwargs)
            torch.cuda.synchronize()
            profiler.cudaProfilerStop()
            bound = {**dict(zip(function.arg_names, args)), **kwargs}
            metadata = compiled.metadata
            launch = {
                **about,
                "kernel": metadata.name,
                "num_warps": metadata.num_warps,
                "grid": _grid(grid, bound),
                "arguments": _arguments([(n, bound[n]) for n in function.arg_names if n in bound]),
                "signature": _signature(compiled)[1],
            }
            # The later repeats are the same kernels again.
            keep({**launch, "ptx": "" if about["repeat"] else compiled.asm["ptx"]})
            return compiled

        JITFunction.run = run

    def __exit__(self, *_: object) -> None:
        self._class.run = self._run


if __name__ == "__main__":
    main()
