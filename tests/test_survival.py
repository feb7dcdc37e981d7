"""Whatever a kernel, a case file or a signal does: a clear outcome, every other result kept, no orphans."""

from __future__ import annotations

import json
import signal
import subprocess
import textwrap
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow.parquet as pq
import pytest
import run_folders
from conftest import Project, Workshop

from matrix.errors import ExitCode
from matrix.running import pool
from matrix.running.process import Died, WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIR = ("--baseline", "3.8.0", "--candidate", "3.9.0", "--no-builtin", "--targets", "sm_90")

GOOD = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * {factor}, mask=i < n)

def run(x):
    {before}
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out

case = Case(
    name={name!r},
    run=run,
    reference=lambda x: x * {factor},
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    compile=[{{"n": 1000}}],
    interpret=[{{"n": 257}}],
)
"""


def good(name: str, *, before: str = "pass", factor: int = 2) -> str:
    return GOOD.format(name=name, before=before, factor=factor)


MISBEHAVING = {
    "segfaults": "import ctypes; ctypes.string_at(0)",
    "aborts": "import os; os.abort()",
    "hangs": "import time; time.sleep(10_000)",
    "exhausts_memory": "held = bytearray(1 << 45)",
    "prints_megabytes": "import os; os.write(1, b'x' * (4 << 20)); os.write(2, b'y' * (16 << 20)); print('z' * 9999)",
    "exits": "import sys; sys.exit(0)",
    "exits_hard": "import os; os._exit(0)",
    "writes_protocol": 'import os; os.write(1, b\'{"id": 1, "done": true}\\n\')',
    "reads_stdin": "import sys; sys.stdin.read()",
}
OUTCOMES = {
    "segfaults": "crash",
    "aborts": "crash",
    "hangs": "timeout",
    "exhausts_memory": "out_of_memory",
    "prints_megabytes": "passed",
    "exits": "case_error",
    "exits_hard": "crash",
    "writes_protocol": "passed",
    "reads_stdin": "passed",
    "good": "passed",
}


def cells(project: Project) -> list[dict]:
    return pq.read_table(project.latest / "cells.parquet").to_pylist()


def outcomes(project: Project, stage: str, environment: str = "triton3.9.0") -> dict[str, str]:
    rows = [r for r in cells(project) if r["stage"] == stage and r["environment"].startswith(environment)]
    return {row["case"]: row["outcome"] for row in rows}


def workers_of(root: Path) -> list[psutil.Process]:
    """Processes that work in this project's scratch folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(root) in process.cwd():
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


@pytest.fixture(autouse=True)
def environments(workshop: Workshop) -> None:
    for version in ("3.8.0", "3.9.0"):
        workshop.environment(version)


def test_misbehaving_kernels_have_outcomes_and_cost_no_other_cell(project: Project) -> None:
    project.write("matrix.toml", "[timeouts]\ncompile = 10\ninterpret = 20\n")
    for name, before in MISBEHAVING.items():
        project.write(f"cases/{name}.py", good(name, before=before))
    project.write("cases/good.py", good("good"))

    done = project.matrix("run", *PAIR, "--kernels", "cases", "--stages", "import,compile", "--json")

    assert done.returncode == ExitCode.INCOMPLETE, done.stderr
    assert json.loads(done.stdout)["exit_code"] == ExitCode.INCOMPLETE
    assert outcomes(project, "compile") == OUTCOMES
    assert outcomes(project, "compile", "triton3.8.0") == OUTCOMES
    assert set(outcomes(project, "import").values()) == {"passed"}
    by_name = {row["case"]: row for row in cells(project) if row["stage"] == "compile"}
    assert "SIGSEGV" in by_name["segfaults"]["reason"]
    assert "SIGABRT" in by_name["aborts"]["reason"]
    assert workers_of(project.root) == []


def test_a_real_compiler_abort_is_named_and_the_rest_goes_on(project: Project, workshop: Workshop) -> None:
    workshop.environment("3.2.0")
    project.write("cases/good.py", good("good"))
    done = project.matrix(
        "run", "--baseline", "3.2.0", "--candidate", "3.9.0", "--no-builtin", "--targets", "sm_90,sm_100",
        "--kernels", "cases", "--stages", "import,compile",
    )  # fmt: skip
    rows = {(r["triton_version"], r["target"]): r for r in cells(project) if r["stage"] == "compile"}
    assert rows["3.2.0", "sm_90"]["outcome"] == "passed"
    assert rows["3.2.0", "sm_100"]["outcome"] in {"compiler_abort", "unsupported", "compile_error"}
    assert rows["3.2.0", "sm_100"]["reason"]
    assert rows["3.9.0", "sm_100"]["outcome"] == "passed"
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr


def test_files_that_do_not_import_are_outcomes_of_their_environment(project: Project) -> None:
    project.write("cases/broken.py", "def broken(:\n")
    only_old = good("only_old") + "\nimport triton\nassert triton.__version__ < '3.9', 'not in 3.9'\n"
    project.write("cases/only_old.py", only_old)
    project.write("cases/good.py", good("good"))
    done = project.matrix("run", *PAIR, "--kernels", "cases", "--stages", "import,compile")
    assert done.returncode == ExitCode.REGRESSED, done.stdout + done.stderr
    assert outcomes(project, "import", "triton3.8.0") == {
        "broken": "import_error",
        "only_old": "passed",
        "good": "passed",
    }
    assert outcomes(project, "import")["only_old"] == "import_error"
    assert "not in 3.9" in done.stdout or "only_old" in done.stdout
    assert outcomes(project, "compile")["good"] == "passed"


def test_two_cases_of_one_name_are_refused_with_both_places(project: Project) -> None:
    project.write("a/same.py", good("same"))
    project.write("b/same.py", good("same"))
    done = project.matrix("run", *PAIR, "--kernels", "a", "--kernels", "b")
    assert done.returncode == ExitCode.USAGE
    assert "a/same.py" in done.stderr
    assert "b/same.py" in done.stderr
    assert "Traceback" not in done.stderr


EVIL = "<script>alert(1)</script>"


def test_whatever_files_and_cases_are_called_a_run_is_whole(project: Project) -> None:
    """Two files of one name with different cases, and a case that is named like a script."""
    project.write("a/same.py", good("one", factor=2))
    project.write("b/same.py", good("other", factor=3))
    project.write("b/evil.py", good(EVIL))
    done = project.matrix("run", *PAIR, "--kernels", "a", "--kernels", "b")
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    assert outcomes(project, "interpret") == {"one": "passed", "other": "passed", EVIL: "passed"}
    page = (project.latest / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    row = next(row for row in cells(project) if row["stage"] == "compile" and row["case"] == EVIL)
    assert not set("<>[]/()") & set(row["cell_id"].split("/")[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_is_resumed_and_redoes_only_what_is_missing(
    project: Project, number: signal.Signals
) -> None:
    slow = textwrap.dedent("import time; time.sleep(1.0)")
    for index in range(8):
        project.write(f"cases/c{index}.py", good(f"c{index}", before=slow))
    arguments = ("run", *PAIR, "--kernels", "cases", "--stages", "import,compile", "--jobs", "2")
    process = project.start(*arguments)
    cache = project.root / ".matrix" / "cache"
    deadline = time.monotonic() + 120
    # The collected case files come first (8 files in 2 environments), then compiled cells.
    while time.monotonic() < deadline and len(list(cache.rglob("*.json"))) < 16 + 4:
        time.sleep(0.05)
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    if number is not signal.SIGKILL:
        assert process.returncode == ExitCode.INTERRUPTED, text
        assert "run again to resume" in text
    wait_until(lambda: workers_of(project.root) == [])

    done = project.matrix(*arguments)

    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    compiled = [row for row in cells(project) if row["stage"] == "compile"]
    assert len(compiled) == 16
    assert 4 <= sum(row["cached"] for row in compiled) < 16


def wait_until(holds, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.1)


def test_a_full_disk_is_one_clear_error_and_keeps_what_was_measured(project: Project, tmp_path: Path) -> None:
    project.write("cases/good.py", good("good"))
    runs = project.root / ".matrix" / "runs"
    runs.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(runs)], check=False)
    assert mounted.returncode == 0, "this test fills a file system of its own, which takes root"
    try:
        done = project.matrix("run", *PAIR, "--kernels", "cases", "--stages", "import,compile")
    finally:
        subprocess.run(["umount", "-l", str(runs)], check=True)
    assert done.returncode == ExitCode.INCOMPLETE, done.stdout + done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    again = project.matrix("run", *PAIR, "--kernels", "cases", "--stages", "import,compile")
    assert again.returncode == ExitCode.CLEAN
    assert all(row["cached"] for row in cells(project) if row["stage"] == "compile")


def test_a_damaged_table_is_named_and_nothing_else_is_lost(project: Project) -> None:
    folder = run_folders.build(project.root / "run")
    table = folder / "verdicts.parquet"
    whole = table.read_bytes()
    for damage in ("truncated", "foreign", "not parquet", "missing"):
        match damage:
            case "truncated":
                table.write_bytes(whole[:-100])
            case "foreign":
                pq.write_table(pq.read_table(table).select(["run_id"]), table)
            case "not parquet":
                table.write_text("hello")
            case _:
                table.unlink()
        done = project.matrix("report", str(folder))
        assert done.returncode == ExitCode.INCOMPLETE, damage
        assert "verdicts.parquet" in done.stderr
        assert "Traceback" not in done.stderr
        table.write_bytes(whole)
    assert project.matrix("report", str(folder)).returncode == ExitCode.CLEAN


class Dying:
    """A worker whose process ends in each configuration that it is asked for; ``starts`` of them start."""

    starts = 0

    def __init__(self, *_: object) -> None:
        self.start_seconds = 0.0

    def start(self) -> dict[str, bool]:
        Dying.starts -= 1
        return {"ready": Dying.starts >= 0}

    def ask(self, request: dict, *, timeout_s: float) -> Iterator[dict]:
        yield {"begin": f"BLOCK{len(request['skip'])}"}
        yield {"at": "compile"}
        raise Died("SIGABRT")

    def log_tail(self) -> str:
        return ""

    def close(self) -> None:
        """There is no process."""


@pytest.mark.parametrize(
    ("starts", "reason"),
    [(9, "3 workers were lost, the last by BLOCK2: SIGABRT"), (2, "no worker starts any more, the last by BLOCK1: ")],
)
def test_configurations_that_were_given_up_are_told(
    starts: int, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pool, "Worker", Dying)
    monkeypatch.setattr(pool, "_MAX_RESTARTS_A_TASK", 3)
    Dying.starts = starts
    spec = WorkerSpec(environment="e", target="sm_90", interpreter=tmp_path, variables=(), start={})
    lane = pool.Lane(spec=spec, tasks=deque([pool.Task(key="k", request={}, timeout_s=1)]))
    (result,) = pool.Pool(slots=1, logs=tmp_path).run([lane])
    *lost, last = result.parts
    assert [part["config"] for part in lost] == ["BLOCK0", "BLOCK1", "BLOCK2"][: len(lost)]
    assert (last["config"], last["outcome"]) == ("", "compiler_abort") and last["reason"].startswith(reason)
