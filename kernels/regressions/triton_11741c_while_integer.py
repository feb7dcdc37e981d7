"""triton#11741: ``while i:`` with an integer condition does not compile before 3.9.

Up to 3.8.0 the condition has to be a boolean; 3.9.0 compares an integer with zero by itself.
https://github.com/triton-lang/triton/pull/11741, repaired by https://github.com/triton-lang/triton/pull/11234
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.8.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"


@triton.jit
def power_kernel(x_ptr, out_ptr, exponent, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    power = tl.full((BLOCK,), 1.0, tl.float32)
    left = exponent
    while left:
        power *= x
        left -= 1
    tl.store(out_ptr + offsets, power)


def power(x, *, exponent=5, block=256):
    out = torch.empty_like(x)
    power_kernel[(x.numel() // block,)](x, out, exponent, BLOCK=block)
    return out


case = Case(
    name="regression_triton_11741c",
    run=power,
    reference=lambda x: x**5,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    expectations=[
        Expect(
            outcome="compile_error",
            triton="<3.9",
            reason="before 3.9 the condition of a while must be a boolean",
            link="https://github.com/triton-lang/triton/pull/11741",
        ),
    ],
    tags=["regression"],
)
