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
    assert "modifies=(0, 1, 3),  # positions" in text
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
    method = project.matrix("adopt", "ours:Layer.forward").stderr
    assert "Layer.forward lies in a class, and a case is of a function" in method
    assert "hint: wrap it in a function of ours: def launch(x): return Layer.forward(x)" in method
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
    project.write("src/lacking.py", "import os\n\nimport no_such_package\n\n\ndef f(): ...\n")
    lacking = project.matrix("adopt", "lacking:f").stderr
    assert "No module named 'no_such_package' at lacking.py:3; if it is a package: REQUIRES = " in lacking
    assert 'for adopt itself: requires = ["no_such_package"] under [defaults]' in lacking
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


SEVERAL = """
import dataclasses

import torch

from ours import axpy, axpy_kernel


@dataclasses.dataclass
class Options:
    scale: float = 1.0


def each(xs, options, how, dtype):
    return [axpy(x, x, options.scale) for x in xs]


def chosen(x, index, keep, weight, half):
    return axpy(x.contiguous(), x.contiguous(), 1.0)


def onto(x, out):
    axpy_kernel[(1,)](x, out, out, x.numel(), 2.0, BLOCK=256)
    return out


def slope(x):
    x.grad = None
    (x * x).sum().backward()
    return axpy(x.detach(), x.grad, 1.0)


def nothing(x, out):
    onto(x, out)
"""


def several(project: Project) -> Project:
    """With a module of launch functions that take more than tensors and numbers."""
    project.write("ours.py", OWN)
    project.write("several.py", SEVERAL)
    project.write("matrix.toml", 'pythonpath = ["."]\nbuiltin = false\nkernels = ["cases"]\n')
    (project.root / "cases").mkdir()
    return project


def test_what_no_literal_can_say_is_imported_or_left_to_fill_in(project: Project) -> None:
    arguments = "[torch.rand(200), torch.randn(20, 5)], __import__('several').Options(2.0), object(), torch.float16"
    done = several(project).matrix("adopt", "several:each", "--arguments", arguments)
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert done.stderr == "left to do: fill in x2, a value of object: <object object>\n"
    assert "from several import Options\n" in done.stdout and "        Options(scale=2.0),\n" in done.stdout
    assert (
        '        [make.uniform((200,), "fp32", low=' in done.stdout and 'make.normal((20, 5), "fp32")],' in done.stdout
    )
    missing = "x2, a value of object: <object object>"
    assert f'        # TODO: {missing}\n        fill_in("{missing}"),\n        torch.float16,\n' in done.stdout
    compile(done.stdout, "drafted.py", "exec")
    project.write("cases/each.py", done.stdout)
    assert project.matrix("run", "--targets", "sm_90", "--stages", "import,compile").returncode != ExitCode.CLEAN
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells[cells.stage == "import"].outcome) == {"passed"}
    assert f"NotImplementedError: the draft of each is not complete: fill in {missing}" in set(cells.reason)


def test_values_are_drawn_over_the_range_and_in_the_layout_that_they_had(project: Project) -> None:
    arguments = (
        "torch.randn(10, 20).t().requires_grad_(), torch.tensor([3, 9, 7]), torch.rand(6, 9)[:, ::2] > 2, "
        "torch.full((4, 1), 2.0).expand(4, 5), -torch.rand(6, 9)[:, ::2].half() - 1"
    )
    done = several(project).matrix("adopt", "several:chosen", "--arguments", arguments)
    assert done.returncode == ExitCode.CLEAN and not done.stderr, done.stderr
    assert 'make.normal((10, 20), "fp32").t().requires_grad_()' in done.stdout
    assert 'make.integers((3,), 3, 10, "int64")' in done.stdout
    assert 'make.integers((6, 5), 0, 1, "bool")' in done.stdout
    assert 'make.uniform((4, 1), "fp32", low=1, high=3).expand(4, 5)' in done.stdout
    assert 'make.uniform((6, 5), "fp16", low=-' in done.stdout
    arguments = "torch.randn(10, 20)[:, :8], torch.zeros(3).as_strided((2, 2), (1, 1)), 0, 0, 0"
    done = project.matrix("adopt", "several:chosen", "--arguments", arguments)
    assert 'make.normal((188,), "fp32").as_strided((10, 8), (20, 1))' in done.stdout
    remark = "x1: its strides were (1, 1); drawn contiguous"
    assert f"        # {remark}\n        make.normal((2, 2)" in done.stdout and f"note: {remark}\n" in done.stderr


def test_a_completed_draft_of_what_writes_its_inputs_passes(project: Project) -> None:
    references = {"onto": "x1 + 2 * x0", "nothing": "(x0, x1 + 2 * x0)", "slope": "3 * x0"}
    several(project)
    for name, truth in references.items():
        arguments = "torch.randn(100, requires_grad=True)" if name == "slope" else "torch.randn(100), torch.randn(100)"
        done = project.matrix("adopt", f"several:{name}", "--arguments", arguments)
        assert done.returncode == ExitCode.CLEAN, done.stderr
        modifies = {"onto": "modifies=(1,),", "nothing": "modifies=(0, 1),"}.get(name, "case = ")
        assert modifies in done.stdout
        text = done.stdout.replace(f'raise NotImplementedError("what {name} computes, in plain torch operations")',
                                   f"return {truth}")  # fmt: skip
        project.write(
            f"cases/{name}.py", text.replace("# reference=", "reference=").replace("# interpret", "interpret")
        )
    done = project.matrix("run", "--targets", "sm_90")
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    cells = pd.read_parquet(project.latest / "cells.parquet")
    assert set(cells.outcome) == {"passed"} and {*references} <= set(cells[cells.stage == "interpret"].case)
