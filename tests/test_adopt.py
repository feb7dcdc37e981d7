"""A case drafted from a launch function that exists."""

from __future__ import annotations

import pandas as pd
from conftest import Project

from matrix.errors import ExitCode

OWN = """
import torch
import triton
import triton.language as tl


@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, n, a, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, a * x + tl.load(y_ptr + at, mask=mask, other=0.0), mask=mask)


def axpy(x, y, a):
    out = torch.empty_like(x)
    axpy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), a, BLOCK=256, num_warps=2)
    return out
"""
CALL = ("--arguments", "torch.randn(100, 10).half(), torch.randn(100, 10).half(), 2.5")


def test_a_function_s_call_becomes_a_case_that_runs(project: Project) -> None:
    project.write("src/ours/ops.py", OWN)
    project.write("src/ours/__init__.py", "")
    project.write("matrix.toml", 'pythonpath = ["src"]\nbuiltin = false\nkernels = ["cases"]\n')
    (project.root / "cases").mkdir()
    done = project.matrix("adopt", "ours.ops:axpy", *CALL, "-o", "cases/axpy.py")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    text = (project.root / "cases" / "axpy.py").read_text()
    assert 'make.normal((100, 10), "fp16"), make.normal((100, 10), "fp16"), 2.5' in text
    assert 'kernels=["axpy_kernel"]' in text
    assert "axpy_kernel[[4, 1, 1]] num_warps=2" in text and "BLOCK=256" in text
    assert "x_ptr: fp16 [100, 10]" in text
    assert project.matrix("run", "--targets", "sm_90").returncode == ExitCode.CLEAN
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells.outcome) == {"passed"} and "axpy" in set(cells.case)
    again = project.matrix("adopt", "ours.ops:axpy", *CALL, "-o", "cases/axpy.py")
    assert again.returncode == ExitCode.USAGE and "is there already" in again.stderr


def test_of_a_function_that_returns_nothing_what_it_writes_is_named(project: Project) -> None:
    own = OWN.replace("axpy(x, y, a)", "axpy(x, y, a, out)").replace("    out = torch.empty_like(x)\n", "")
    project.write("ours.py", own.replace("    return out\n", ""))
    project.write("matrix.toml", 'pythonpath = ["."]\n')
    arguments = "torch.randn(100), torch.randn(100), 2.5, torch.empty(100)"
    text = project.matrix("adopt", "ours:axpy", "--arguments", arguments).stdout
    assert "def run(x0, x1, x2, x3):" in text and "    axpy(x0, x1, x2, x3)\n    return x0, x1, x3\n" in text
    assert "run=run," in text
    compile(text, "drafted.py", "exec")


def test_what_goes_wrong_is_one_clear_error(project: Project) -> None:
    project.write("src/ours.py", OWN)
    done = project.matrix("adopt", "ours:axpy")
    assert done.returncode == ExitCode.USAGE
    assert f'write pythonpath = ["src"] into {project.root / "matrix.toml"}: ours lies there' in done.stderr
    project.write("matrix.toml", 'pythonpath = ["src"]\n')
    assert "is not module:function" in project.matrix("adopt", "ours.axpy").stderr
    assert "No module named 'theirs'" in project.matrix("adopt", "theirs:axpy").stderr
    done = project.matrix("adopt", "ours:axpy")
    assert done.returncode == ExitCode.USAGE
    assert "missing 3 required positional arguments" in done.stderr
    assert "say what it is called with: --arguments 'torch.randn(64, 64), 8'" in done.stderr
    assert "(': '(' was never closed" in project.matrix("adopt", "ours:axpy", "--arguments", "f(").stderr
    assert "b: an argument by its name" in project.matrix("adopt", "ours:axpy", "--arguments", "1, b=2").stderr
    project.write("src/broken.py", "def f(:\n")
    broken = project.matrix("adopt", "broken:f").stderr
    assert "SyntaxError" in broken and "pythonpath" not in broken
    for wrong in ("torch.randn(64", "a=1", "1], [2", "x for x in ()"):
        done = project.matrix("adopt", "ours:axpy", "--arguments", wrong)
        assert done.returncode == ExitCode.USAGE and f"error: --arguments {wrong!r}: " in done.stderr
        assert "positional arguments as Python expressions" in done.stderr


def test_of_a_kernel_that_does_not_compile_the_user_s_own_lines_are_shown(project: Project) -> None:
    project.write("ours.py", OWN.replace("a * x +", "a * x.doubled() +"))
    project.write("matrix.toml", 'pythonpath = ["."]\n')
    done = project.matrix("adopt", "ours:axpy", *CALL)
    assert done.returncode == ExitCode.USAGE and "ended with compile_error: CompilationError" in done.stderr
    frames = [line for line in done.stderr.splitlines() if line.startswith('  File "')]
    assert len(frames) == 1 and f'"{project.root / "ours.py"}", line 17, in axpy' in frames[0]
    assert "a * x.doubled() +" in done.stderr
