"""triton#7268: a ``triton.Config`` that names no ``num_stages`` gets 3 from 3.3 on, where it got 2.

The same source asks for one more pipeline buffer, which cards of 99 KiB feel first. Good up to 3.2.0, more
shared memory from 3.3.0, by design. A default is part of the source, so the resolved options of every kernel
are recorded with it. One configuration launched as an autotuner would: no tuner is needed to see it.
https://github.com/triton-lang/triton/issues/7268
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.3.1"
TARGET = "sm_80"
PARAMS = {}
FIGURE = {"num_stages": (2, 3), "shared_bytes": (16384, 32768)}
FLAG = "shared_memory"

CONFIG = triton.Config({"BLOCK": 64}, num_warps=4)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    steps = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * n + (start + steps)[None, :])
        b = tl.load(b_ptr + (start + steps)[:, None] * n + cols[None, :])
        total = tl.dot(a, b, total)
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], total.to(tl.float16))


def matmul(a, b):
    n = a.shape[0]
    tiles = n // CONFIG.kwargs["BLOCK"]
    out = torch.empty_like(a)
    matmul_kernel[tiles, tiles](a, b, out, n, **CONFIG.all_kwargs())
    return out


case = Case(
    name="regression_triton_7268",
    run=matmul,
    reference=lambda a, b: a @ b,
    inputs=lambda make, _: [make.normal((1024, 1024), "fp16"), make.normal((1024, 1024), "fp16")],
    targets=["sm_80", "sm_90"],
    expectations=[
        Expect(
            change="shared_memory",
            triton=">=3.3",
            reason="triton.Config defaults to num_stages=3 from 3.3, before to 2",
            link="https://github.com/triton-lang/triton/issues/7268",
        ),
    ],
    tags=["regression"],
)
