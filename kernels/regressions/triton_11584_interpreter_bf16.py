"""triton#11584: the interpreter multiplies the bit patterns of bf16 in ``tl.dot``.

Whole numbers in bf16, one 16x16x16 dot: 2e10 where 0 to 11 is right, in every release. Declined as not
supported, so it is the interpreter's deviation and no kernel's; fp16 beside it is exact.
https://github.com/triton-lang/triton/issues/11584
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "interpret"
GOOD, BAD = "3.9.0", "3.9.0"
TARGET = "cpu"
PARAMS = {"dtype": "fp16"}
BAD_PARAMS = {"dtype": "bf16"}
FIGURE = {"outcome": ("passed", "wrong")}
FLAG = "wrong"


@triton.jit
def dot_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    a = tl.load(a_ptr + rows * BLOCK + cols)
    b = tl.load(b_ptr + rows * BLOCK + cols)
    tl.store(out_ptr + rows * BLOCK + cols, tl.dot(a, b))


def dot(a, b, *, block=16):
    out = torch.empty((block, block), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, b, out, BLOCK=block)
    return out


case = Case(
    name="regression_triton_11584",
    run=dot,
    reference=lambda a, b: a @ b,
    inputs=lambda make, p: [make.integers((16, 16), 0, 2, p.dtype), make.integers((16, 16), 0, 2, p.dtype)],
    compile=[{"dtype": "bf16"}],
    interpret=[{"dtype": "fp16"}, {"dtype": "bf16"}],
    exact=True,
    targets=["sm_90"],
    expectations=[
        Expect(
            stage="interpret",
            outcome="wrong",
            params={"dtype": "bf16"},
            reason="Triton's interpreter multiplies the raw bits of bf16 in tl.dot",
            link="https://github.com/triton-lang/triton/issues/11584",
        ),
    ],
    tags=["regression"],
)
