"""triton#3281: ``other=0.0`` of a masked load counts as not given, and the masked lanes hold anything.

A test for truth on the scalar, on main in March 2024: the sum of 16 valid lanes of 256 was off by 240. Repaired
before 3.0.0, so a sentinel with no bad release; 1e-7 in its place was right. Looked at by the interpreter and on a GPU.
https://github.com/triton-lang/triton/issues/3281
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "interpret"
GOOD, BAD = "3.9.0", ""
TARGET = "cpu"
PARAMS = {"rows": 3, "lanes": 16, "other": 0.0}
FIGURE = {"outcome": ("passed", "passed")}


@triton.jit
def sum_kernel(x_ptr, out_ptr, lanes, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * lanes + cols, mask=cols < lanes, other=OTHER)
    tl.store(out_ptr + row, tl.sum(x, 0))


def row_sums(x, *, other, block=256):
    rows, lanes = x.shape
    out = torch.empty((rows,), dtype=x.dtype, device=x.device)
    sum_kernel[(rows,)](x, out, lanes, OTHER=other, BLOCK=block)
    return out


def sums_with_the_rest(x, *, other, block=256):
    return x.sum(1) + other * (block - x.shape[1])


case = Case(
    name="regression_triton_3281",
    without={"strided": "takes contiguous inputs"},
    run=row_sums,
    reference=sums_with_the_rest,
    inputs=lambda make, p: [make.normal((p.rows, p.lanes), "fp32", mean=1.0)],
    axes={"other": [0.0, 1e-7]},
    interpret=[{"rows": 3, "lanes": 16}],
    correctness=[{"rows": 1009, "lanes": 16}, {"rows": 1009, "lanes": 255}],
    timing=[{"rows": 1 << 18, "lanes": 16, "other": 0.0}],
    bytes_moved=lambda p: 4 * p.rows * (p.lanes + 1),
    targets=["sm_90"],
    tags=["regression", "sentinel"],
)
