"""triton#7188: an fp8 dot runs as an fp16 one on sm_120.

The RTX 50 has the instruction, but in 3.3 and 3.4 the lowering upcasts both operands to fp16, at half the
rate or worse. Native from 3.5.0; sm_90 always was. sm_80 has no fp8e4nv and says so in every release.
https://github.com/triton-lang/triton/issues/7188
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.5.1", "3.4.0"
TARGET = "sm_120"
PARAMS = {}
FIGURE = {"matrix_ops": ({"mma.m16n8k32.f32.e4m3.e4m3": 16}, {"mma.m16n8k16.f32.f16.f16": 32})}
FLAG = "matrix_type_widened"


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(a_ptr + rows * BLOCK + cols)
    b = tl.load(b_ptr + rows + cols * BLOCK)
    tl.store(out_ptr + rows * BLOCK + cols, tl.dot(a, b))


def dot(a, b, *, block=64):
    out = torch.empty((block, block), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, b, out, BLOCK=block)
    return out


LINK = "https://github.com/triton-lang/triton/issues/7188"

case = Case(
    name="regression_triton_7188",
    run=dot,
    inputs=lambda make, _: [make.normal((64, 64), "fp8e4nv"), make.normal((64, 64), "fp8e4nv")],
    expectations=[
        Expect(
            outcome="unsupported",
            targets=["sm_80"],
            reason="sm_80 has no fp8e4nv",
            link=LINK,
        ),
        Expect(
            change="matrix_type_widened",
            triton=">=3.3,<3.5",
            targets=["sm_120"],
            reason="3.3 and 3.4 upcast fp8 to fp16 on sm_120",
            link=LINK,
        ),
        Expect(
            change="matrix_type_narrowed",
            triton=">=3.5",
            targets=["sm_120"],
            reason="from 3.5 the fp8 dot of sm_120 is native",
            link=LINK,
        ),
    ],
    tags=["regression"],
)
