"""triton#6691: the order of two independent statements in a pipelined loop changes the answer.

The loop keeps a column sum of A and an accumulated A^T B. The report has 16-bit inputs, 128 columns, 5000 rows and
blocks of 64: wrong with num_stages > 1 in one of the two orders, in the days of 3.2 and 3.3, and never closed.
``dot_first`` and ``sum_first`` must agree with each other and with the reference, whatever ``stages`` is.
https://github.com/triton-lang/triton/issues/6691
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # the report names values on a GPU, no mark in the code
GOOD, BAD = "3.9.0", "3.2.0"
TARGET = "sm_90"
PARAMS = {"batch": 3, "rows": 5000, "order": "sum_first", "stages": 1, "dtype": "fp16"}
BAD_PARAMS = {"batch": 3, "rows": 5000, "order": "sum_first", "stages": 3, "dtype": "fp16"}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def gram_kernel(a_ptr, b_ptr, sum_ptr, gram_ptr, rows, SUM_FIRST: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, D)
    total = tl.zeros((D,), tl.float32)
    gram = tl.zeros((D, D), tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        offsets = (batch * rows + row[:, None]) * D + dims[None, :]
        mask = row[:, None] < rows
        a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
        b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
        if SUM_FIRST:
            total += tl.sum(a.to(tl.float32), 0)
            gram += tl.dot(tl.trans(a), b)
        else:
            gram += tl.dot(tl.trans(a), b)
            total += tl.sum(a.to(tl.float32), 0)
    tl.store(sum_ptr + batch * D + dims, total)
    tl.store(gram_ptr + (batch * D + dims[:, None]) * D + dims[None, :], gram)


def gram(a, b, *, order, stages, block=64):
    batch, rows, d = a.shape
    total = torch.empty((batch, d), dtype=a.dtype, device=a.device)
    out = torch.empty((batch, d, d), dtype=a.dtype, device=a.device)
    first = order == "sum_first"
    gram_kernel[(batch,)](a, b, total, out, rows, SUM_FIRST=first, BLOCK=block, D=d, num_warps=4, num_stages=stages)
    return total, out


case = Case(
    name="regression_triton_6691",
    without={"strided": "takes contiguous inputs"},
    run=gram,
    reference=lambda a, b: (a.sum(1), a.transpose(1, 2) @ b),
    inputs=lambda make, p: [make.normal((p.batch, p.rows, 128), p.dtype) for _ in range(2)],
    axes={"order": ["sum_first", "dot_first"], "stages": [1, 2, 3], "dtype": ["fp16", "bf16"]},
    interpret=[{"batch": 1, "rows": 200, "stages": 3, "dtype": "fp16"}],
    correctness=[{"batch": 3, "rows": 5000}],
    timing=[{"batch": 264, "rows": 5000, "stages": 3, "dtype": "fp16"}],
    flops=lambda p: 2 * p.batch * p.rows * 128 * 128,
    targets=["sm_90"],
    tags=["regression"],
)
