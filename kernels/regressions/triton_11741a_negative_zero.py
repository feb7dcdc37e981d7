"""triton#11741: ``tl.full(shape, -0.0)`` loses the sign.

Up to 3.8.0 the constant is +0.0 in the TTIR already; 3.9.0 keeps -0.0. Long-standing rather than a
regression, but a change of values between releases, so the bits are compared and not the numbers.
https://github.com/triton-lang/triton/pull/11741, repaired by https://github.com/triton-lang/triton/pull/11426
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "interpret"
GOOD, BAD = "3.9.0", "3.8.0"
TARGET = "cpu"
PARAMS = {"n": 256}
FIGURE = {"outcome": ("passed", "wrong")}
FLAG = "wrong"
ON_GPU = {"STAGE": "correctness", "TARGET": "sm_90", "FIGURE": {"outcome": ("passed", "wrong")}}


@triton.jit
def fill_kernel(out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.full((BLOCK,), -0.0, tl.float32))


def fill(like, *, block=256):
    out = torch.empty(like.shape, dtype=torch.float32, device=like.device)
    fill_kernel[(out.numel() // block,)](out, BLOCK=block)
    return out.view(torch.int32)


def negative_zeros(like):
    return torch.full(like.shape, -0.0, dtype=torch.float32, device=like.device).view(torch.int32)


case = Case(
    name="regression_triton_11741a",
    run=fill,
    reference=negative_zeros,
    inputs=lambda make, p: [make.zeros((p.n,), "fp32")],
    interpret=[{"n": 256}],
    expectations=[
        Expect(
            stage=stage,
            outcome="wrong",
            triton="<3.9",
            reason="before 3.9 tl.full drops the sign of -0.0",
            link="https://github.com/triton-lang/triton/pull/11741",
        )
        for stage in ("interpret", "correctness")
    ],
    tags=["regression"],
)
