"""triton#10883: fp8 / fp8 promotes to fp32 from 3.9.

Before, the quotient was typed as fp8, for which there is no lowering: a type error in 3.0 and 3.1, an abort
of the whole process in 3.2 (LLVM's bit widths), a failed pass from 3.3 to 3.8. 3.9.0 computes in fp32.
https://github.com/triton-lang/triton/pull/10883
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
def divide_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    quotient = tl.load(x_ptr + offsets) / tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, quotient.to(tl.float32))


def divide(x, y, *, block=256):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    divide_kernel[(x.numel() // block,)](x, y, out, BLOCK=block)
    return out


TYPED_FP8 = "before 3.9 the quotient of two fp8 values is typed fp8, which nothing lowers"
LINK = "https://github.com/triton-lang/triton/pull/10883"

case = Case(
    name="regression_triton_10883",
    run=divide,
    inputs=lambda make, _: [make.normal((1024,), "fp8e5"), make.normal((1024,), "fp8e5")],
    expectations=[
        Expect(outcome="compile_error", triton="!=3.2.*,<3.9", reason=TYPED_FP8, link=LINK),
        Expect(outcome="compiler_abort", triton="==3.2.*", reason=TYPED_FP8, link=LINK),
    ],
    tags=["regression"],
)
