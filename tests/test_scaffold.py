"""Yours in five minutes: init, and case files as tests of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT, Project, Workshop

from matrix.authoring.scaffold import initialise
from matrix.errors import ExitCode, StorageError, UsageError

ABORTING = """
import os

import torch
import triton
import triton.language as tl
from matrix import (
    Case,
    Expect,
)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + WRONG, mask=at < n)


WRONG = tl.constexpr(1)


def copy(x):
    out = torch.empty_like(x)
    copy_kernel[(1,)](x, out, x.numel(), BLOCK=256)
    return out


def dies(x):
    os.abort()


def inputs(make, p):
    return [make.normal((200,), "fp32")]


one = Case(name="off_by_one", run=copy, reference=lambda x: x, inputs=inputs, interpret=[{}])
two = Case(name="dies", run=dies, inputs=inputs, compile=[{}])
known = Case(
    name="known", run=copy, reference=lambda x: x, inputs=inputs, interpret=[{}],
    expectations=[Expect(stage="interpret", outcome="wrong", reason="adds one", link="https://example.org")],
)
"""


def test_init_writes_what_runs_as_it_stands(project: Project) -> None:
    done = project.matrix("init")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert done.stdout.split() == ["matrix.toml", "matrix_cases/double.py"]
    assert project.matrix("run", "--targets", "sm_90").returncode == ExitCode.CLEAN
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells.outcome) == {"passed"}
    assert set(cells.stage) == {"import", "compile", "interpret"}


def test_init_overwrites_nothing(project: Project) -> None:
    path = project.write("matrix.toml", "# mine\n")
    done = project.matrix("init")
    assert done.returncode == ExitCode.USAGE
    assert "already there: matrix.toml" in done.stderr
    assert path.read_text() == "# mine\n"
    assert not (project.root / "matrix_cases").exists()


def test_init_where_a_file_is_in_the_way_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "matrix_cases").write_text("mine")
    with pytest.raises(UsageError, match=r"already there: .*matrix_cases"):
        initialise(tmp_path)
    assert not (tmp_path / "matrix.toml").exists()
    with pytest.raises(StorageError, match="cannot write"):
        initialise(tmp_path / "matrix_cases" / "below")


@pytest.fixture(scope="module")
def interpreter(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """An interpreter with torch, Triton and this package's own needs, as a user has it."""
    built = workshop.environment("3.7.1")
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    folder = tmp_path_factory.mktemp("beside")
    subprocess.run([str(built.interpreter), "-m", "venv", "--system-site-packages", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    theirs = built.interpreter.parent.parent / packages.relative_to(folder)
    (packages / "beside.pth").write_text(f"{theirs}\n{site}\n{ROOT}\n")
    return [
        str(folder / "bin" / "python"),
        "-P",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "matrix.pytest_plugin",
    ]


def run(command: list[str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Where this package is installed, pytest would find the plug-in by itself as well.
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # Its own settings, wherever the suite's temporary files lie: pytest looks for them in all folders above.
    (cwd / "pytest.ini").touch()
    return subprocess.run(
        [*command, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=600
    )


def test_pytest_checks_case_files_cell_by_cell(interpreter: list[str], project: Project) -> None:
    project.matrix("init")
    project.write("matrix.toml", 'pythonpath = ["src"]\n')
    project.write("src/sizes.py", "N = 200\n")
    double = project.root / "matrix_cases" / "double.py"
    double.write_text(f"import sizes  # by matrix.toml's pythonpath\n{double.read_text()}")
    project.write("matrix_cases/test_broken.py", ABORTING)
    project.write("matrix_cases/helper.py", "N = 200  # a Case of no matrix: no case file\n")
    done = run(interpreter, "--matrix", "--matrix-targets", "sm_90", "-rA", "matrix_cases", cwd=project.root)
    assert "double.py::interpret/cpu/double:n=1023,dtype=fp16,block=512" in done.stdout, done.stdout + done.stderr
    told = {line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "XFAIL"))}
    assert "FAILED matrix_cases/test_broken.py::interpret/cpu/off_by_one" in told
    assert "FAILED matrix_cases/test_broken.py::compile/sm_90/dies" in told
    assert "XFAIL matrix_cases/test_broken.py::interpret/cpu/known" in told
    assert "200 of 200 elements wrong" in done.stdout
    assert "2 failed, 18 passed, 1 xfailed" in done.stdout


SURPRISING = """
import matrix as mx
from sizes import copy

Case = mx.Case
late = Case(
    name="late", run=copy, reference=lambda x: x, interpret=[{}],
    inputs=lambda make, p: [make.normal((200,), "fp32")],
    expectations=[mx.Expect(stage="interpret", outcome="wrong", reason="adds one", link="https://example.org")],
)
"""


def test_pytest_fails_what_a_run_does_not_take(interpreter: list[str], project: Project) -> None:
    source = ABORTING.partition("one = Case")[0].replace("+ WRONG", "")
    project.write("src/sizes.py", source)
    project.write("matrix.toml", 'pythonpath = ["src"]\n[timeouts]\nimport = 15\n')
    project.write("cases/a_late.py", SURPRISING)
    project.write("cases/b_twice.py", SURPRISING)
    project.write("cases/c_hangs.py", "import time\nfrom matrix import Case\ntime.sleep(300)\n")
    options = ("--matrix", "--matrix-targets", "sm_90", "-rA", "--continue-on-collection-errors")
    done = run(interpreter, *options, "cases", cwd=project.root)
    assert "1 failed, 1 passed, 2 errors" in done.stdout, done.stdout + done.stderr
    assert "interpret/cpu/late" in done.stdout and "passes, but wrong was expected: adds one" in done.stdout
    told = f"case 'late' in {project.root / 'cases' / 'a_late.py'} and case 'late' in"
    assert told in done.stdout and "ERROR cases/b_twice.py" in done.stdout
    assert "ERROR cases/c_hangs.py" in done.stdout and "no answer in 15 s" in done.stdout


def test_without_the_flag_the_plug_in_imports_nothing_and_collects_nothing(
    interpreter: list[str], project: Project
) -> None:
    project.matrix("init")
    own = "[m for m in sys.modules if m in ('torch', 'triton', 'matrix.running.execute', 'rich')]"
    project.write("test_own.py", f"import sys\n\n\ndef test_own():\n    assert not {own}\n")
    done = run(interpreter, cwd=project.root)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
