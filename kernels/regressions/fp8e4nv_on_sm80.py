"""fp8e4nv on sm_80: every release refuses it, where sm_90 and sm_120 take it.

A one-tile dot of two fp8e4nv operands. By design: Ampere has no instruction for the format. No release is at fault,
and the refusal is a clear one, in the compiler's own words.
https://github.com/triton-lang/triton/blob/v3.9.0/third_party/nvidia/backend/compiler.py
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.9.0"
TARGET, BAD_TARGET = "sm_90", "sm_80"
PARAMS = {}
FIGURE = {"outcome": ("passed", "unsupported")}
FLAG = "unsupported"


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(a_ptr + rows * BLOCK + cols)
    b = tl.load(b_ptr + cols * BLOCK + rows)
    tl.store(out_ptr + rows * BLOCK + cols, tl.dot(a, b))


def dot(a, b, *, block=64):
    out = torch.empty((block, block), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, b, out, BLOCK=block)
    return out


case = Case(
    name="regression_fp8e4nv_sm80",
    run=dot,
    reference=lambda a, b: a @ b.T,
    inputs=lambda make, _: [make.normal((64, 64), "fp8e4nv"), make.normal((64, 64), "fp8e4nv")],
    expectations=[
        Expect(
            outcome="unsupported",
            targets=["sm_80"],
            reason="sm_80 has no fp8",
            link="https://github.com/triton-lang/triton/blob/v3.9.0/third_party/nvidia/backend/compiler.py",
        ),
    ],
    tags=["regression"],
)
