"""Real workers in real environments: launches compiled for GPUs that are not there, runs interpreted."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workshop

from matrix.model import Target
from matrix.provisioning.builds import BuiltEnvironment
from matrix.running.process import Worker
from matrix.running.workers import WorkerHome, profile
from matrix.settings.environments import child_environment

CASE = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def kernel(x, out, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n, other=0.0) * SCALE, mask=i < n{half})

@triton.autotune([triton.Config({{"BLOCK": b}}, num_warps=w) for b, w in [(128, 1), (256, 4)]], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)

def run(x, *, block=128, launch="plain"):
    out = torch.empty_like(x)
    n = x.numel()
    if launch == "plain":
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, SCALE={scale}, BLOCK=block)
    elif launch == "tuned":
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    elif launch == "none":
        out.copy_(2 * x)
    return out

case = Case(
    name="c",
    run=run,
    reference=lambda x: 2 * x,
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    compile=[{{"n": 1000}}],
)
"""


@pytest.fixture(scope="module")
def home(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHome]:
    """Of the newest release. Every worker is a process of its own; torch is imported once, in their warm parent."""
    built = workshop.environment("3.9.0")
    home = WorkerHome(
        environment=built.id,
        interpreter=built.interpreter,
        variables=child_environment(built.environment),
        pythonpath=(),
        scratch=tmp_path_factory.mktemp("scratch"),
        memory_bytes=16 << 30,
    )
    yield home
    home.close()


@contextmanager
def worker(home: WorkerHome, kind: str, tmp_path: Path, target: str = "") -> Iterator[Worker]:
    process = Worker(home.spec(kind, target), tmp_path)
    ready = process.start()
    assert ready["ready"], ready
    try:
        yield process
    finally:
        process.close()


def ask(process: Worker, op: str, path: Path, **params: Any) -> list[dict[str, Any]]:
    request = {"op": op, "path": str(path), "case": "c", "params": {"n": 1000, **params}, "spool": str(path.parent)}
    return [message["part"] for message in process.ask(request, timeout_s=120) if "part" in message]


def case_file(folder: Path, *, scale: float = 2.0, half: str = "") -> Path:
    path = folder / "c.py"
    path.write_text(CASE.format(scale=scale, half=half))
    return path


@pytest.fixture
def newest(workshop: Workshop) -> BuiltEnvironment:
    return workshop.environment("3.9.0")


@pytest.mark.parametrize("target", list(Target))
def test_a_launch_is_compiled_for_the_worker_s_target(home: WorkerHome, tmp_path: Path, target: Target) -> None:
    path = case_file(tmp_path)
    with worker(home, "compile", tmp_path, target) as process:
        (part,) = ask(process, "compile", path)
    assert part["outcome"] == "passed"
    (kernel,) = part["kernels"]
    if target.is_amd:
        assembly = (tmp_path / kernel["artifacts"]["amdgcn"]).read_text()
        assert f'-{target}"' in next(line for line in assembly.splitlines() if ".amdgcn_target" in line)
        assert set(kernel["seconds"]) == {"ttir", "ttgir", "llir", "amdgcn", "hsaco"}
        return
    ptx = (tmp_path / kernel["artifacts"]["ptx"]).read_text()
    named = next(line for line in ptx.splitlines() if line.startswith(".target")).split()[1].rstrip(",af")
    assert named == target
    assert kernel["signature"]["x"] == "*fp32"
    assert kernel["grid"] == [8, 1, 1]
    assert kernel["ptxas_version"].count(".") == 2
    assert set(kernel["seconds"]) == {"ttir", "ttgir", "llir", "ptx", "cubin"}
    # Of processor time, ptxas's with it: no more than the clock on the wall, however busy the machine is.
    assert kernel["seconds"]["cubin"] > 0 and sum(kernel["seconds"].values()) <= part["seconds"] + 0.1


def test_switching_targets_inside_a_process_is_caught(newest: BuiltEnvironment, tmp_path: Path) -> None:
    """Triton's in-memory cache is keyed by device, not by target: the second target gets the first one's code."""
    script = tmp_path / "switch.py"
    script.write_text(
        f"""
import sys
sys.argv = ["x"]
exec(open({str(ROOT / "matrix" / "worker" / "__main__.py")!r}).read().split("if __name__")[0])
_load_package(__import__("pathlib").Path({str(ROOT / "matrix")!r}))
import json
from matrix.worker.compile import Compiler
from matrix.worker.target import Profile, WrongTarget, stand_in
first, second = (Profile(**p) for p in json.loads({json.dumps(json.dumps([profile("sm_90"), profile("sm_80")]))}))
request = {{"id": 1, "path": {str(case_file(tmp_path))!r}, "case": "c", "params": {{"n": 1000}}}}
request["spool"] = {str(tmp_path)!r}
stand_in(first)
Compiler(first, lambda message: None).answer(request)
stand_in(second)
try:
    Compiler(second, lambda message: None).answer(request)
except WrongTarget as error:
    print("caught:", error)
"""
    )
    done = subprocess.run(
        [str(newest.interpreter), "-I", str(script)], capture_output=True, text=True, check=False, timeout=120
    )
    assert "caught: asked for sm_80, the assembly says '.target sm_90a'" in done.stdout, done.stdout + done.stderr


def test_every_configuration_of_an_autotuned_kernel_is_compiled(home: WorkerHome, tmp_path: Path) -> None:
    with worker(home, "compile", tmp_path, "sm_90") as process:
        parts = ask(process, "compile", case_file(tmp_path), launch="tuned")
    assert [part["config"] for part in parts] == ["BLOCK128.warps1", "BLOCK256.warps4"]
    assert [part["kernels"][0]["num_warps"] for part in parts] == [1, 4]


GATHER = """
import torch, triton, triton.language as tl
from matrix import Case

@triton.jit
def gather(ids, table, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(table + tl.load(ids + i)))

def run(ids, changed, table):
    changed[0] = 3
    out = torch.empty(64, dtype=table.dtype, device=table.device)
    for index in (ids.view(-1), changed, ids):
        gather[(1,)](index, table, out, BLOCK=64)
    return out

def inputs(make, p):
    return [make.integers((8, 8), 0, p.n), make.integers((64,), 0, p.n), make.normal((p.n,), "fp32")]

case = Case(name="c", run=run, reference=None, inputs=inputs, compile=[{"n": 1000}])
"""


def test_integers_are_the_case_s_own_until_something_may_have_changed_them(home: WorkerHome, tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(GATHER)
    with worker(home, "compile", tmp_path, "sm_90") as process:
        (part,) = ask(process, "compile", path)
    first, changed, again = ({a["name"]: a for a in kernel["arguments"]} for kernel in part["kernels"])
    assert {name: first["ids"]["drawn"][name] for name in ("low", "high", "count", "dtype")} == {
        "low": 0,
        "high": 1000,
        "count": 64,
        "dtype": "int64",
    }
    assert "drawn" not in first["table"]
    assert "drawn" not in changed["ids"]  # torch wrote an element
    assert "drawn" not in again["ids"]  # the first launch had it: it may have written there


def test_a_run_without_a_launch_is_not_launched(home: WorkerHome, tmp_path: Path) -> None:
    path = case_file(tmp_path)
    with worker(home, "compile", tmp_path, "sm_90") as process:
        assert ask(process, "compile", path, launch="none")[0]["outcome"] == "not_launched"
    with worker(home, "interpret", tmp_path) as process:
        assert ask(process, "interpret", path, launch="none")[0]["outcome"] == "not_launched"


@pytest.mark.parametrize(
    ("scale", "half", "outcome"),
    [(2.0, "", "passed"), (2.001, "", "wrong"), (2.0, " & (i % 2 == 0)", "unwritten")],
)
def test_the_interpreter_s_outputs_are_judged(
    home: WorkerHome, tmp_path: Path, scale: float, half: str, outcome: str
) -> None:
    with worker(home, "interpret", tmp_path) as process:
        part = ask(process, "interpret", case_file(tmp_path, scale=scale, half=half))[0]
    assert part["outcome"] == outcome, part


def test_a_helper_that_two_case_files_share_counts_for_both(home: WorkerHome, tmp_path: Path) -> None:
    helper = tmp_path / "lib" / "shared_helper.py"
    helper.parent.mkdir()
    helper.write_text("SCALE = 2.0\n")
    text = "from shared_helper import SCALE\n" + CASE.format(scale=2.0, half="")
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    spec = home.spec("collect")
    process = Worker(replace(spec, start={**spec.start, "pythonpath": [str(helper.parent)]}), tmp_path)
    assert process.start()["ready"]
    try:
        for path in paths:
            path.write_text(text)
            (part,) = ask(process, "collect", path)
            assert set(part["files"]) == {str(path), str(helper)}
    finally:
        process.close()
