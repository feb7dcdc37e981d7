"""triton#6489: a rewrite of ``tl.sort`` was reverted because its compile time was catastrophic.

Only nightlies had it. The releases show its figures improve: the same 8x128 tile is 25984 bytes of code up to
3.3.1 and 13824 from 3.4.0. A sentinel: sort and top-k unroll into thousands of instructions, where a small
change of the library multiplies compile time.
https://github.com/triton-lang/triton/pull/6489
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.4.0", "3.3.1"
TARGET = "sm_90"
PARAMS = {"rows": 8, "cols": 128}
FIGURE = {"code_bytes": (13824, 25984), "fma": (0, 344)}
FLAG = "execution_multiplied"


@triton.jit
def sort_kernel(x_ptr, out_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    offsets = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    tl.store(out_ptr + offsets, tl.sort(tl.load(x_ptr + offsets)))


def sort(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    sort_kernel[(1,)](x, out, ROWS=rows, COLS=cols)
    return out


case = Case(
    name="regression_triton_6489",
    run=sort,
    reference=lambda x: torch.sort(x).values,
    inputs=lambda make, p: [make.normal((p.rows, p.cols), "fp32")],
    compile=[{"rows": 8, "cols": 128}],
    targets=["sm_90"],
    tags=["regression"],
)
