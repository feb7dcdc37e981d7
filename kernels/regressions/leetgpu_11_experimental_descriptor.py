"""LeetGPU#11: the experimental tensor descriptor existed in 3.3 only.

``tl._experimental_make_tensor_descriptor`` came with 3.3.0 and was renamed ``tl.make_tensor_descriptor`` in
3.4.0, with no alias left behind. Good in 3.3.1, an AttributeError before and after.
https://github.com/dsl-learn/LeetGPU/issues/11
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.3.1", "3.4.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"


@triton.jit
def copy_kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    x = tl._experimental_make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])  # noqa: SLF001
    out = tl._experimental_make_tensor_descriptor(out_ptr, [rows, cols], [cols, 1], [BLOCK, BLOCK])  # noqa: SLF001
    row, col = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    out.store([row, col], x.load([row, col]))


def copy(x, *, block=64):
    rows, cols = x.shape
    out = torch.empty_like(x)
    copy_kernel[(rows // block, cols // block)](x, out, rows, cols, BLOCK=block)
    return out


case = Case(
    name="regression_leetgpu_11",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, _: [make.normal((1024, 1024), "fp16")],
    targets=["sm_90", "sm_100", "sm_120"],
    expectations=[
        Expect(
            outcome="compile_error",
            triton="!=3.3.*",
            reason="the experimental name existed in 3.3 only; it is tl.make_tensor_descriptor from 3.4",
            link="https://github.com/dsl-learn/LeetGPU/issues/11",
        ),
    ],
    tags=["regression"],
)
