"""triton#4321: a call of Python's ``math`` into a ``tl.constexpr`` is refused inside a kernel.

Good in 2.x; "not a Triton function" in 3.0.0 and 3.1.0; repaired in 3.2.0.
https://github.com/triton-lang/triton/issues/4321
"""

import math

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.1.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"


@triton.jit
def exponential_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    log2_e: tl.constexpr = math.log2(math.e)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.exp2(tl.load(x_ptr + offsets) * log2_e))


def exponential(x, *, block=256):
    out = torch.empty_like(x)
    exponential_kernel[(x.numel() // block,)](x, out, BLOCK=block)
    return out


case = Case(
    name="regression_triton_4321",
    run=exponential,
    reference=torch.exp,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    expectations=[
        Expect(
            outcome="compile_error",
            triton="<3.2",
            reason="3.0 and 3.1 refuse a call of math into a constexpr",
            link="https://github.com/triton-lang/triton/issues/4321",
        ),
    ],
    tags=["regression"],
)
