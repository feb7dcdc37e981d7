"""Nsight Compute on one call of one cell: finds it, runs it, and survives whatever it says.

The GPU's clocks are left alone (``--clock-control none``), so that a kernel's time is that of the timing stage;
caches are flushed before each pass (ncu's default), as they are before a cold sample.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.gpus import counters
from matrix.model import Outcome
from matrix.records import CounterRecord
from matrix.resources import worker_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.gpus.counters import LaunchCounters

_MAIN = worker_file("__main__.py")
_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/nsight-compute")
_TIMEOUT_S = 180.0
_KERNELS = 40  # of one call: a run() that launches hundreds is read in part
_ATTEMPTS = 3  # each leaves out the metrics that the one before did not know


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What came of profiling one call. ``launches`` are of Triton kernels alone."""

    outcome: Outcome
    reason: str = ""
    detail: str = ""
    launches: tuple[LaunchCounters, ...] = ()
    missing: tuple[str, ...] = ()  # metrics that this GPU or this ncu does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The call to be profiled: a cell of an environment on one GPU. ``variables`` name the GPU."""

    interpreter: Path
    variables: Mapping[str, str]
    path: Path
    case: str
    params: Mapping[str, Any]
    pinned: Mapping[str, Mapping[str, Any]]
    pythonpath: Sequence[str] = ()

    def request(self) -> str:
        return json.dumps(
            {
                "path": str(self.path),
                "case": self.case,
                "params": dict(self.params),
                "pinned": {name: dict(values) for name, values in self.pinned.items()},
                "pythonpath": list(self.pythonpath),
            }
        )


def find() -> str:
    """Where ``ncu`` is; empty where it is not installed."""
    found = shutil.which("ncu")
    beside = (str(path) for place in _PLACES for path in sorted(Path("/").glob(f"{place[1:]}/ncu"), reverse=True))
    return found or next((path for path in beside if os.access(path, os.X_OK)), "")


def count(call: Call, *, ncu: str | None = None, timeout_s: float = _TIMEOUT_S) -> Counted:
    """Profile one call. Never raises for what ncu or the case does: that is the outcome."""
    program = find() if ncu is None else ncu
    if not program:
        return Counted(
            outcome=Outcome.NOT_RUN, reason="no counters: ncu (Nsight Compute) is not installed on this host"
        )
    metrics = counters.METRICS
    for _ in range(_ATTEMPTS):
        done = _run(program, metrics, call, timeout_s)
        known = counters.without(metrics, counters.unknown_metrics(done.said))
        if known == metrics:
            break
        metrics = known
    return _counted(done, timeout_s)


def rows(counted: Counted, **identity: Any) -> list[CounterRecord]:
    """The rows of a cell: one a launch, or one with the reason. ``identity``: what names run, host, GPU and cell."""
    said: dict[str, Any] = {"outcome": str(counted.outcome), "reason": counted.reason}
    if not counted.launches:
        return [CounterRecord(**identity, **said)]
    return [
        CounterRecord(**identity, **said, index=index, **_figures(launch))
        for index, launch in enumerate(counted.launches)
    ]


def _figures(launch: LaunchCounters) -> dict[str, Any]:
    return {field.name: getattr(launch, field.name) for field in dataclasses.fields(launch)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    code: int | None  # None: it ran out of time
    output: str  # of the profiled process
    errors: str
    log: str  # of ncu: its messages and the table

    @property
    def said(self) -> str:
        return f"{self.log}\n{self.errors}"


def _run(program: str, metrics: Sequence[str], call: Call, timeout_s: float) -> _Done:
    with tempfile.TemporaryDirectory(prefix="matrix-ncu-") as name:
        folder = Path(name)
        log = folder / "ncu.csv"
        with (folder / "stdout").open("wb") as output, (folder / "stderr").open("wb") as errors:
            process = subprocess.Popen(
                [*_command(program, metrics, log), str(call.interpreter), "-I", str(_MAIN), call.request()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                # ncu keeps one run from another by a lock file in TMPDIR; ours is for nobody else.
                env={**call.variables, "TMPDIR": name},
                cwd=folder,
                start_new_session=True,
            )
            code = _wait(process, timeout_s)
        texts = {what: _text(folder / what) for what in ("stdout", "stderr", log.name)}
    return _Done(code=code, output=texts["stdout"], errors=texts["stderr"], log=texts[log.name])


def _command(program: str, metrics: Sequence[str], log: Path) -> list[str]:
    options = ["--clock-control", "none", "--profile-from-start", "off", "--target-processes", "application-only"]
    table = ["--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)]
    return [program, *options, "--launch-count", str(_KERNELS), *table, "--metrics", ",".join(metrics)]


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # ncu's own children too, also where we are interrupted.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _counted(done: _Done, timeout_s: float) -> Counted:
    detail = "\n".join(text.strip()[-2000:] for text in (done.log, done.errors) if text.strip())
    if done.code is None:
        return Counted(outcome=Outcome.TIMEOUT, reason=f"ncu did not end in {timeout_s:g} s", detail=detail)
    try:
        rows = counters.parse(done.log)
    except (ValueError, KeyError) as error:
        return Counted(outcome=Outcome.RUN_ERROR, reason=f"ncu's table could not be read: {error}", detail=detail)
    names = _launched(done.output)
    launches = tuple(row for row in rows if row.kernel in names)
    if launches:
        return Counted(outcome=Outcome.PASSED, launches=launches, missing=counters.missing(done.log))
    if why := counters.problem(done.said):
        return Counted(outcome=Outcome.NOT_RUN, reason=f"no counters: {why}", detail=detail)
    if done.code:
        last = next((line for line in reversed(done.errors.splitlines()) if line.strip()), f"exit code {done.code}")
        return Counted(
            outcome=Outcome.RUN_ERROR, reason=f"the profiled call failed: {last.strip()}"[:300], detail=detail
        )
    return Counted(
        outcome=Outcome.NOT_LAUNCHED, reason="no counters: the call launched no Triton kernel", detail=detail
    )


def _launched(output: str) -> set[str]:
    """The Triton kernels of the call, as the process under ncu named them in its last line."""
    lines = [line for line in output.splitlines() if line.startswith('{"kernels"')]
    return set(json.loads(lines[-1])["kernels"]) if lines else set()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
