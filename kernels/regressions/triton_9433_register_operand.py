"""triton#9433: the assembler reuses registers that a wgmma still reads.

The left operand of a product is computed, so that it stays in registers, and feeds two wgmma in each step of a
pipelined loop: ptxas 12.4 to 12.9, which all releases have for sm_90, may overwrite the registers before the
asynchronous instruction has read them (64 expected, 61 seen); ptxas 13.3 does not. Whole numbers, so that every output
is exact; with one stage nothing is pipelined.
https://github.com/triton-lang/triton/issues/9433
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # the same PTX under another assembler is right
GOOD, BAD = "3.6.0", "3.6.0"
TARGET = "sm_90"
PARAMS = {"m": 512, "n": 512, "k": 4096, "stages": 1, "warps": 4}
BAD_PARAMS = {"m": 512, "n": 512, "k": 4096, "stages": 3, "warps": 4}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def two_products_kernel(
    a_ptr, b_ptr, c_ptr, out_b_ptr, out_c_ptr, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    step = tl.arange(0, BLOCK_K)
    with_b = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    with_c = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptr + row[:, None] * k + start + step[None, :]).to(tl.bfloat16) + 1.0
        at = (start + step[:, None]) * n + col[None, :]
        computed = a.to(tl.bfloat16)
        with_b = tl.dot(computed, tl.load(b_ptr + at), with_b)
        with_c = tl.dot(computed, tl.load(c_ptr + at), with_c)
    out = row[:, None] * n + col[None, :]
    tl.store(out_b_ptr + out, with_b)
    tl.store(out_c_ptr + out, with_c)


def two_products(a, b, c, *, stages, warps):
    (m, k), n = a.shape, b.shape[1]
    with_b, with_c = (torch.empty((m, n), dtype=torch.float32, device=a.device) for _ in range(2))
    two_products_kernel[(m // 64, n // 128)](
        a, b, c, with_b, with_c, n, k, BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, num_warps=warps, num_stages=stages
    )
    return with_b, with_c


def whole_numbers(rows, cols, step, most, device):
    """The same at every point, so that bits can be compared from one point to the other."""
    count = torch.arange(rows * cols, device=device) * step // 11
    return (count % (2 * most + 1) - most).view(rows, cols)


def inputs(make, p):
    a = whole_numbers(p.m, p.k, 7, 2, make.device).to(torch.int8)
    b, c = (whole_numbers(p.k, p.n, step, 1, make.device).to(torch.bfloat16) for step in (13, 19))
    return [a, b, c]


case = Case(
    name="regression_triton_9433",
    without={"strided": "takes contiguous inputs", "large_values": "beyond what is exact", "small_values": "likewise"},
    run=two_products,
    reference=lambda a, b, c: ((a.double() + 1) @ b, (a.double() + 1) @ c),
    inputs=inputs,
    axes={"stages": [1, 3, 4], "warps": [4, 8]},
    correctness=[{"m": 512, "n": 512, "k": 4096}],
    exact=True,
    targets=["sm_90"],
    tags=["regression"],
)
