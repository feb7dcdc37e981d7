"""A kernel with a line of PTX in it: a population count, four integers a time (``tl.inline_asm_elementwise``)."""

import torch
import triton
import triton.language as tl

from matrix import Case

NVIDIA = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"]


@triton.jit
def popcount_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    count = tl.inline_asm_elementwise("popc.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out_ptr + offsets, count, mask=mask)


def popcount(x, *, block=1024):
    out = torch.empty_like(x)
    popcount_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


def reference(x):
    return sum((x >> bit) & 1 for bit in range(31))


case = Case(
    name="inline_assembly",
    run=popcount,
    reference=reference,
    inputs=lambda make, p: [make.integers((p.n,), 0, 1 << 31, "int32")],
    correctness=[{"n": 1}, {"n": 1023}, {"n": 98_432}],
    timing=[{"n": 1 << 24}],
    bytes_moved=lambda p: 8 * p.n,
    exact=True,
    without={"strided": "takes contiguous inputs"},
    targets=NVIDIA,
    tags=["builtin", "front-end"],
)
