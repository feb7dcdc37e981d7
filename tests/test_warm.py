"""Warm parents: what they fork is as good as a fresh process, and nothing of theirs is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, Workshop

from matrix.running.child import Forked, Started
from matrix.running.process import Died, TimedOut, Worker
from matrix.running.workers import WorkerHome
from matrix.settings.environments import child_environment

CASE = """
import os, time
from matrix import Case

def run(x):
    pass

def inputs(make, p):
    {before}
    return [make.normal((p.n,), "fp32")]

case = Case(name="c", run=run, inputs=inputs, compile=[{{"n": 8}}])
"""


@pytest.fixture
def home(workshop: Workshop, tmp_path: Path) -> Iterator[WorkerHome]:
    built = workshop.environment("3.9.0")
    home = WorkerHome(
        environment=built.id,
        interpreter=built.interpreter,
        variables=child_environment(built.environment),
        pythonpath=(),
        scratch=tmp_path,
        memory_bytes=16 << 30,
    )
    yield home
    home.close()
    until(lambda: processes(tmp_path) == [])


def processes(folder: Path) -> list[psutil.Process]:
    """Those that work in the folder; zombies have no folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def until(holds: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.05)


def started(home: WorkerHome, kind: str = "compile") -> Worker:
    worker = Worker(home.spec(kind, "sm_90" if kind == "compile" else ""), home.scratch)
    ready = worker.start()
    assert ready["ready"], ready
    return worker


def ask(worker: Worker, folder: Path, before: str = "pass", timeout_s: float = 60) -> list[dict[str, Any]]:
    path = folder / f"c{abs(hash(before))}.py"
    path.write_text(CASE.format(before=before))
    request = {"op": "compile", "path": str(path), "case": "c", "params": {"n": 8}, "spool": str(folder)}
    return [message["part"] for message in worker.ask(request, timeout_s=timeout_s) if "part" in message]


def test_workers_of_every_kind_are_forked_but_those_for_a_gpu(home: WorkerHome) -> None:
    for kind in ("collect", "compile", "interpret"):
        worker = started(home, kind)
        assert isinstance(worker._child, Forked)
        worker.close()
    assert home.spec("gpu", gpu="GPU-0").parent is None


def test_a_fork_takes_no_import(home: WorkerHome) -> None:
    started(home).close()
    worker = started(home)
    assert worker.start_seconds < 1.0
    worker.close()


@pytest.mark.parametrize(
    ("before", "how"),
    [
        ("os.abort()", "the process died of SIGABRT"),
        ("os.kill(os.getpid(), 11)", "the process died of SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "the process died of SIGKILL, perhaps out of memory"),
        ("os._exit(7)", "the process exited with code 7 in mid-request"),
    ],
)
def test_how_a_forked_worker_ends_is_told_and_the_next_one_works(
    home: WorkerHome, tmp_path: Path, before: str, how: str
) -> None:
    worker = started(home)
    with pytest.raises(Died, match=f"^{how}$"):
        ask(worker, tmp_path, "os.write(2, b'the last words'); " + before)
    assert worker.log_tail().endswith("the last words")
    worker.close()
    worker = started(home)
    assert ask(worker, tmp_path)[0]["outcome"] == "not_launched"
    worker.close()


def test_a_hanging_fork_is_killed_with_all_that_it_started(home: WorkerHome, tmp_path: Path) -> None:
    worker, other = started(home), started(home)
    with pytest.raises(TimedOut):
        ask(worker, tmp_path, "__import__('subprocess').run(['sleep', '1000'])", timeout_s=2)
    worker.close()
    until(lambda: not [p for p in processes(tmp_path) if p.name() == "sleep"])
    assert ask(other, tmp_path)[0]["outcome"] == "not_launched"
    other.close()


def test_what_a_worker_leaves_running_ends_with_it(home: WorkerHome, tmp_path: Path) -> None:
    worker = started(home)
    ask(worker, tmp_path, "__import__('subprocess').Popen(['sleep', '1000'])")
    assert [p for p in processes(tmp_path) if p.name() == "sleep"]
    worker.close()
    until(lambda: not [p for p in processes(tmp_path) if p.name() == "sleep"])


def test_a_parent_that_dies_takes_its_workers_along_and_is_replaced(home: WorkerHome, tmp_path: Path) -> None:
    worker = started(home)
    parents = [p for p in processes(tmp_path) if p.pid == worker._child.parent]  # type: ignore[union-attr]
    parents[0].kill()
    with pytest.raises(Died, match="SIGKILL"):
        ask(worker, tmp_path, "time.sleep(100)")
    worker.close()
    worker = started(home)
    assert isinstance(worker._child, Forked)
    assert ask(worker, tmp_path)[0]["outcome"] == "not_launched"
    worker.close()


def test_an_environment_that_does_not_import_has_no_warm_parent(home: WorkerHome, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text(f'#!/bin/sh\nexec "{home.interpreter}" -S "$@"\n')  # no site-packages
    broken.chmod(0o755)
    lost = WorkerHome(
        environment="broken",
        interpreter=broken,
        variables=home.variables,
        pythonpath=(),
        scratch=tmp_path,
        memory_bytes=16 << 30,
    )
    worker = Worker(lost.spec("collect"), tmp_path)
    ready = worker.start()
    assert isinstance(worker._child, Started)
    assert (ready["ready"], ready["outcome"]) == (False, "import_error")
    assert "No module named 'torch'" in ready["reason"]
    worker.close()


def test_nothing_outlives_a_control_process_that_is_killed(home: WorkerHome, tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(CASE.format(before="__import__('subprocess').run(['sleep', '1000'])"))
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        from pathlib import Path
        from matrix.running.process import Worker
        from matrix.running.workers import WorkerHome
        folder = Path({str(tmp_path)!r})
        home = WorkerHome(environment="e", interpreter=Path({str(home.interpreter)!r}),
            variables={dict(home.variables)!r}, pythonpath=(), scratch=folder, memory_bytes=16 << 30)
        worker = Worker(home.spec("compile", "sm_90"), folder)
        assert worker.start()["ready"]
        request = {{"op": "compile", "path": {str(path)!r}, "case": "c", "params": {{"n": 8}}, "spool": "."}}
        list(worker.ask(request, timeout_s=1000))
        """
    )
    control = subprocess.Popen([sys.executable, "-P", "-c", script], env={**os.environ}, cwd="/")
    until(lambda: any(p.name() == "sleep" for p in processes(tmp_path)), 60)
    # The parent with torch, its fork with triton, the worker, and what the worker started.
    assert len(processes(tmp_path)) == 4
    control.send_signal(signal.SIGKILL)
    control.wait()
    until(lambda: processes(tmp_path) == [])
