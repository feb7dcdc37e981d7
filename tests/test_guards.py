"""Writes outside of a tensor, under the interpreter: also where what was there is read, computed with and put back."""

from __future__ import annotations

import pandas as pd
from conftest import Project

CASES = """
import torch
import triton
import triton.language as tl

from matrix import Case


@triton.jit
def in_place_kernel(x_ptr, n, BEYOND: tl.constexpr, HOW: tl.constexpr):
    at = tl.arange(0, 128)
    mask = at < n + BEYOND
    x = tl.load(x_ptr + at, mask=mask, other=0)
    if HOW == "multiply":
        x = x * 3
    elif HOW == "add":
        x = x + 3
    else:
        x = tl.maximum(x, 0)
    tl.store(x_ptr + at, x, mask=mask)


def in_place(x, *, beyond, how):
    in_place_kernel[(1,)](x, x.numel(), BEYOND=beyond, HOW=how)
    return x


@triton.jit
def add_atomically_kernel(x_ptr, y_ptr, n, BEYOND: tl.constexpr):
    at = tl.arange(0, 128)
    mask = at < n + BEYOND
    tl.atomic_add(y_ptr + at, tl.load(x_ptr + at, mask=mask, other=0), mask=mask)


def add_atomically(x, y, *, beyond):
    add_atomically_kernel[(1,)](x, y, x.numel(), BEYOND=beyond)
    return y


def drawn(make, p):
    return make.integers((p.n,), -100, 100, p.dtype) if p.dtype == "int32" else make.normal((p.n,), p.dtype)


MEANT = {"multiply": lambda x: x * 3, "add": lambda x: x + 3, "clamp": lambda x: x.clamp(min=0)}
cases = [
    Case(
        name="in_place",
        run=in_place,
        reference=lambda x, *, how: MEANT[how](x),
        inputs=lambda make, p: [drawn(make, p)],
        modifies=(0,),
        axes={"dtype": ["fp32", "fp16", "int32"], "how": ["multiply", "add", "clamp"], "beyond": [0, 1]},
        interpret=[{"n": 100}, {"n": 97, "dtype": "bf16", "how": "add"}],
    ),
    Case(
        name="add_atomically",
        run=add_atomically,
        reference=lambda x, y: x + y,
        inputs=lambda make, p: [drawn(make, p), drawn(make, p)],
        modifies=(1,),
        axes={"dtype": ["fp32"], "beyond": [0, 1]},
        interpret=[{"n": 100}],
    ),
]
"""


def test_what_is_written_back_outside_is_seen(project: Project) -> None:
    project.write("guarded.py", CASES)
    project.matrix("run", "--no-builtin", "--kernels", "guarded.py", "--stages", "interpret", "--quiet")
    cells = pd.read_parquet(project.latest / "cells.parquet")
    # Without bf16, which the interpreter knows in part.
    found = cells[(cells.stage == "interpret") & ~cells.params.str.contains("bf16")]
    assert len(found) == 2 * (18 + 2)
    beyond = found.params.str.contains("beyond=1")
    assert set(found[beyond].outcome) == {"out_of_bounds"}
    assert set(found[~beyond].outcome) == {"passed"}


def test_of_bfloat16_under_the_interpreter_it_is_said_that_the_kernel_may_be_right(project: Project) -> None:
    project.write("guarded.py", CASES)
    arguments = ("--no-builtin", "--kernels", "guarded.py", "--stages", "interpret", "--quiet", "--json")
    wrong = CASES.replace('"add": lambda x: x + 3', '"add": lambda x: x + 4')
    project.write("guarded.py", wrong)
    project.matrix("run", *arguments, "--cases", "in_place:*how=add,beyond=0")
    cells = pd.read_parquet(project.latest / "cells.parquet")
    said = cells[cells.outcome == "wrong"].set_index("params").reason
    assert said.str.contains("triton#11584").groupby(said.index.str.contains("bf16")).agg(["min", "max"]).to_dict() == {
        "min": {False: False, True: True}, "max": {False: False, True: True}}  # fmt: skip
