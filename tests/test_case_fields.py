"""Mistakes in a case's fields: told where the case is made, all at once, never a test of nothing."""

from __future__ import annotations

import enum
from typing import Any

import pandas as pd
import pytest
from conftest import Project

from matrix.case import Case, Expect, Tolerance
from matrix.errors import ExitCode

PLAIN: dict[str, Any] = {"name": "c", "run": lambda x: x, "inputs": lambda make, p: []}


class Word(enum.Enum):
    A = 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"axes": {"dtype": []}}, "axes: dtype has no values"),
        ({"axes": {"dtype": "fp16"}}, "axes: dtype='fp16' is no list of values"),
        ({"axes": {"dtype": [Word.A]}}, "cannot be a param; give text, a number or a bool"),
        ({"axes": {"shape": [[1, 2]]}}, r"axes: shape: \[1, 2\] cannot be a param"),
        ({"axes": ["dtype"]}, "is no mapping of names to lists"),
        ({"compile": {"n": 3}}, "compile={'n': 3} is no list of points"),
        ({"interpret": [3]}, "interpret: the point 3 is no mapping of params"),
        ({"timing": [{"n": len}]}, "timing: .* cannot be a param"),
        ({"targets": ["sm_70", "sm_90"]}, "targets: sm_70 unknown; known are sm_80, "),
        ({"targets": "sm_90"}, "targets='sm_90' is no list"),
        ({"kernels": "k"}, "kernels='k' is no list"),
        ({"modifies": (-1,)}, "give the positions of inputs"),
        ({"tolerance": 1e-3}, r"tolerance=0.001: give Tolerance\(atol"),
        ({"tolerance": {"fp16": 1e-3}}, "give Tolerance"),
        ({"expectations": ["known"]}, "expectations holds what is no Expect"),
        ({"run": "f"}, "run is no function"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"case 'c': .*{said}"):
        Case(**{**PLAIN, **given})


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(ValueError, match=r"axes: .*; compile: .*; targets: .*; tolerance"):
        Case(**PLAIN, axes={"a": []}, compile=[1], targets=["sm_1"], tolerance=0.1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e-3, "1e-3", None])
def test_a_tolerance_is_two_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match=r"Tolerance\(rtol="):
        Tolerance(atol=0.0, rtol=value)


def test_what_can_be_meant_is_taken() -> None:
    Case(**PLAIN, axes={"dtype": ("fp16",), "n": range(3), "flag": [True], "eps": [1e-5]}, compile=({"n": 1},),
         tolerance={"fp16": Tolerance(atol=0, rtol=1e-3)}, targets=["sm_90", "gfx942"], modifies=(0,),
         expectations=[Expect(reason="r", link="l", outcome="wrong")])  # fmt: skip


CASES = """
import torch, triton
import triton.language as tl
from matrix import Case


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in (32, 64)], key=["n"])
@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n, other=0), mask=at < n)


def double(x):
    out = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


common = {"inputs": lambda make, p: [make.normal((100,), "fp32")], "interpret": [{}]}
cases = [
    Case(name="tuned", run=double, reference=lambda x: 2 * x, **common),
    Case(name="tuned_wrong", run=double, reference=lambda x: 3 * x, **common),
    Case(name="dictionary", run=lambda x: {"out": double(x)}, reference=lambda x: 2 * x, **common),
    Case(name="shapes", run=double, reference=lambda x: 2 * x[None], **common),
    Case(name="beyond", run=double, reference=lambda x: 2 * x, modifies=(1,), **common),
]
"""


@pytest.mark.parametrize("pair", [("3.0.0", "3.4.0"), ("3.8.0", "3.9.0")])
def test_the_interpreter_takes_the_first_configuration_and_a_case_s_mistakes_are_its_own(
    project: Project, pair: tuple[str, str]
) -> None:
    project.write("mine.py", CASES)
    done = project.matrix("run", "--no-builtin", "--kernels", "mine.py", "--stages", "interpret", "--baseline", pair[0],
                          "--candidate", pair[1])  # fmt: skip
    assert done.returncode == ExitCode.INCOMPLETE
    cells = pd.read_parquet(project.latest / "cells.parquet")
    found = cells[cells.stage == "interpret"]
    assert dict(zip(found.case, found.outcome, strict=True)) == {
        "tuned": "passed", "tuned_wrong": "wrong", "dictionary": "case_error", "shapes": "case_error",
        "beyond": "case_error"}  # fmt: skip
    reasons = dict(zip(found.case, found.reason, strict=True))
    assert reasons["shapes"] == "not of one shape: output 0: run() [100], reference() [1, 100]"
    assert "return tensors, not dict" in reasons["dictionary"]
    assert "modifies names input 1, and the case has 1" in reasons["beyond"]


def test_a_file_with_such_a_case_does_not_import_and_says_why(project: Project) -> None:
    project.write("mine.py", CASES.replace('"interpret": [{}]', '"interpret": [{}], "tolerance": 1e-3'))
    done = project.matrix("run", "--no-builtin", "--kernels", "mine.py", "--stages", "import,interpret")
    assert done.returncode in {ExitCode.USAGE, ExitCode.INCOMPLETE}
    assert "case 'tuned': tolerance=0.001: give Tolerance(atol=..., rtol=...)" in done.stdout + done.stderr
