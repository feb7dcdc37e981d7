"""sglang#17908: block sizes chosen for "capability >= 9" do not fit sm_120.

12.0 is more than 9.0, but an RTX 50 has 99 KiB of shared memory a block where Hopper and the B200 have 227:
the extend attention asked for 106496 B and the launch failed with OutOfResources. A matmul with the same rule
of thumb stands in for it. No release is at fault, and the compiled kernel's metadata say so without a GPU.
https://github.com/sgl-project/sglang/pull/17908
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.9.0"
TARGET, BAD_TARGET = "sm_90", "sm_120"
PARAMS = {}
FIGURE = {"outcome": ("passed", "does_not_fit")}
FLAG = "does_not_fit"


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    steps = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, STEP):
        a = tl.load(a_ptr + rows[:, None] * n + (start + steps)[None, :])
        b = tl.load(b_ptr + (start + steps)[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], total.to(tl.float16))


def matmul(a, b):
    n = a.shape[0]
    out = torch.empty_like(a)
    block, stages = (128, 5) if torch.cuda.get_device_capability()[0] >= 9 else (64, 3)
    matmul_kernel[n // block, n // block](a, b, out, n, BLOCK=block, STEP=64, num_warps=8, num_stages=stages)
    return out


case = Case(
    name="regression_sglang_17908",
    run=matmul,
    reference=lambda a, b: a @ b,
    inputs=lambda make, _: [make.normal((1024, 1024), "fp16"), make.normal((1024, 1024), "fp16")],
    targets=["sm_90", "sm_120"],
    expectations=[
        Expect(
            outcome="does_not_fit",
            targets=["sm_120"],
            reason="tiles chosen for 'capability >= 9' need more than the 99 KiB of sm_120",
            link="https://github.com/sgl-project/sglang/pull/17908",
        ),
    ],
    tags=["regression"],
)
