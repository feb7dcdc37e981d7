"""triton#7268: a ``triton.Config`` that names no ``num_stages`` gets 3 from 3.3 on, where it got 2.

The same source asks for one more pipeline buffer: half as much shared memory again, which cards of 99 KiB feel
first. Good up to 3.2.0, more from 3.3.0, by design. A default is part of the source: the resolved options of a
kernel are recorded with it.
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
FIGURE = {"num_stages": (2, 3), "shared_bytes": (0, 0)}


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
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
    out = torch.empty_like(a)
    matmul_kernel[lambda meta: (n // meta["BLOCK"], n // meta["BLOCK"])](a, b, out, n)
    return out


DEFAULT = "triton.Config defaults to num_stages=3 from 3.3, before to 2"
LINK = "https://github.com/triton-lang/triton/issues/7268"

case = Case(
    name="regression_triton_7268",
    run=matmul,
    reference=lambda a, b: a @ b,
    inputs=lambda make, p: [make.normal((1024, 1024), "fp16"), make.normal((1024, 1024), "fp16")],
    expectations=[
        Expect(change="configuration_lost", triton=">=3.3", reason=DEFAULT, link=LINK),
        Expect(change="configuration_gained", triton=">=3.3", reason=DEFAULT, link=LINK),
    ],
    tags=["regression"],
)
