"""What a GPU's own counters say of each launch, with Nsight Compute (ncu), kept for ``memory_agreement.py``.

    python -P tests/benchmarks/memory_counters.py OUT [--python 3.5.1=/path/to/python ...] [--cases GLOB]
        [--file CASES.py ...] [--repeats N] [--seconds S] [--cache FOLDER]

Every case's first timing point in each interpreter (this one where none is given): of the built-in cases, and of
the case files given. First all interpreters compile side by side, each case in one of several processes, without
ncu. Then one process an interpreter runs every case under ncu, ``--repeats`` times, out of the filled cache. A
case that ends its process loses only itself: the next process goes on behind it. OUT gets, of each such process,
``NAME.N.launches.jsonl`` (PTX, cubin, arguments and grid of each launch, in order) and ``NAME.N.csv``, ncu's rows.

After ``--seconds`` no further case is begun; what was counted by then is kept. Called again with the same OUT, it
goes on with the cases that have no rows yet (``--cache`` keeps what was compiled for that). An OUT whose process was
killed lacks the part under way: ncu writes its rows when a process ends.

An autotuned kernel runs in its first configuration. Needs a GPU whose counters this user may read.
"""

from __future__ import annotations

import argparse
import base64
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
    "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    # Between L1 and L2, at the SMs' side of the coalescer that merges what several SMs ask for at one time.
    "received": "l1tex__m_xbar2l1tex_read_sectors.sum",
    "sent": "l1tex__m_l1tex2xbar_write_sectors.sum",
    "l2_read": "lts__t_sectors_op_read.sum",
    "l2_write": "lts__t_sectors_op_write.sum",
    "l2_read_l1": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_l1": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "instructions": "smsp__inst_executed.sum",
    "pipe_alu": "sm__inst_executed_pipe_alu.sum",
    "pipe_fma": "sm__inst_executed_pipe_fma.sum",
    "pipe_xu": "sm__inst_executed_pipe_xu.sum",
    "warps_active": "sm__warps_active.avg.per_cycle_active",
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
    parser.add_argument("--seconds", type=float, default=86400.0)
    parser.add_argument("--cache", type=Path, metavar="FOLDER")
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
        "until": time.time() + given.seconds,
    }
    with tempfile.TemporaryDirectory() as cache:
        measure(given.out, interpreters, request, given.repeats, given.cache or Path(cache))


def measure(out: Path, interpreters: dict[str, str], request: dict[str, Any], repeats: int, cache: Path) -> None:
    """Compile everything in all interpreters at once, then count in one after the other."""
    shards = max(1, (os.cpu_count() or 1) // len(interpreters))
    before = {name: counted_before(out, name) for name in interpreters}
    began = time.monotonic()
    with ThreadPoolExecutor(len(interpreters) * shards) as pool:
        jobs = {
            (name, shard): pool.submit(
                _to_the_end,
                out / f"{name}.compile{shard}",
                python,
                {**request, "repeats": 0, "shard": [shard, shards], "skip": before[name]},
                cache / name,
            )
            for name, python in interpreters.items()
            for shard in range(shards)
        }
        failed = {name: [] for name in interpreters}
        for (name, _), job in jobs.items():
            failed[name] += job.result().failures
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    for name, python in interpreters.items():
        began = time.monotonic()
        if time.time() > request["until"]:
            print(f"{name}: left out, the time is up", flush=True)
            continue
        skip = [*before[name], *(case for case, _ in failed[name])]
        counted = _to_the_end(
            out / name,
            python,
            {**request, "repeats": repeats, "shard": [0, 1], "skip": skip},
            cache / name,
            under_ncu=True,
        )
        rows = sum(_rows(path) for path in out.glob(f"{name}.*.csv"))
        left = f", {counted.left} cases left for another call" if counted.left else ""
        print(f"{name}: {rows} rows in all, in {time.monotonic() - began:.0f} s{left}", flush=True)
        for case, reason in [*failed[name], *counted.failures]:
            print(f"{name} {case}: {reason}", flush=True)
        if not rows:
            said = [path.read_text()[-1000:] for suffix in ("csv", "log") for path in out.glob(f"{name}.0.{suffix}")]
            raise SystemExit("\n".join([f"{name}: no counters, so the rest is left out", *said]))


@dataclass(slots=True)
class Progress:
    """What processes got to: cases begun, those that failed with their reasons, and how many the time left out."""

    begun: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    left: int = 0
    unfinished: str = ""  # begun last, and not ended


def counted_before(out: Path, name: str) -> list[str]:
    """The cases of which an earlier call kept rows. A part without any was killed, and is deleted."""
    begun: list[str] = []
    for launches in sorted(out.glob(f"{name}.*.launches.jsonl")):
        stem = launches.name.removesuffix(".launches.jsonl")
        if not stem.removeprefix(f"{name}.").isdigit():
            continue
        if _rows(out / f"{stem}.csv"):
            begun += _progress(launches).begun
        else:
            launches.unlink()
    return begun


def _rows(path: Path) -> int:
    """Launches that ncu counted: its rows but for the head and the units."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(line.startswith('"') and line[1:2].isdigit() for line in lines)


def _to_the_end(stem: Path, python: str, request: dict[str, Any], cache: Path, *, under_ncu: bool = False) -> Progress:
    """Processes one after the other until every case was begun or the time is up."""
    total = Progress()
    done: list[str] = list(request["skip"])
    attempt = -1
    while True:
        attempt += 1
        part = stem.with_name(f"{stem.name}.{attempt}")
        if under_ncu and Path(f"{part}.launches.jsonl").exists():
            continue  # an earlier call's
        command = [python, "-P", __file__, f"{part}.launches.jsonl", "--child", json.dumps({**request, "skip": done})]
        if under_ncu:
            metrics = ",".join(COUNTERS.values())
            command = ["ncu", *_OPTIONS, "--log-file", f"{part}.csv", "--metrics", metrics, *command]
        timeout = _COUNT_TIMEOUT_S if under_ncu else _COMPILE_TIMEOUT_S
        ended = _run(command, cache, Path(f"{part}.log"), timeout)
        found = _progress(Path(f"{part}.launches.jsonl"))
        total.failures += found.failures
        total.left = found.left
        if found.unfinished:
            total.failures.append((found.unfinished, f"ended its process: {ended}"))
        done += found.begun
        if ended == "exit 0" or not found.begun:
            if ended != "exit 0":
                total.failures.append(("*", f"{ended}, see {part}.log"))
            return total


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


def _progress(path: Path) -> Progress:
    found = Progress()
    ended: set[str] = set()
    for line in path.read_text().splitlines() if path.exists() else []:
        match json.loads(line):
            case {"begin": name}:
                found.begun.append(name)
            case {"end": name, "failure": reason}:
                ended.add(name)
                if reason:
                    found.failures.append((name, reason))
            case {"left": count}:
                found.left = count
    found.unfinished = "".join(name for name in found.begun[-1:] if name not in ended)
    return found


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
        cases = [case for case in list(_cases(request))[shard::shards] if case.name not in request["skip"]]
        for number, case in enumerate(cases):
            if time.time() > request["until"]:
                _keep(kept, {"left": len(cases) - number})
                break
            _keep(kept, {"begin": case.name, "at_s": time.time()})
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
    torch.cuda.empty_cache()  # the profiler saves all memory that a kernel could write, before each of its passes
    for repeat in range(repeats):
        with _profiled(keep, {"params": dict(point), "repeat": repeat}):
            cases.call(case.run, inputs, point)
            torch.cuda.synchronize()


def packed(code: bytes) -> str:
    return base64.b64encode(zlib.compress(code)).decode()


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
            code = {"ptx": compiled.asm["ptx"], "cubin": packed(compiled.asm["cubin"])}
            keep({**launch, **(dict.fromkeys(code, "") if about["repeat"] else code)})
            return compiled

        JITFunction.run = run

    def __exit__(self, *_: object) -> None:
        self._class.run = self._run


if __name__ == "__main__":
    main()
