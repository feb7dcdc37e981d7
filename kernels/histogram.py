"""Histogram of small integers: one integer atomic an element, on few and hot addresses."""

import torch
import triton
import triton.language as tl

from matrix import Case


@triton.jit
def histogram_kernel(x_ptr, count_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(count_ptr + value, tl.full((BLOCK,), 1, tl.int32), mask=mask, sem="relaxed")


def histogram(x, *, bins, block=1024):
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    histogram_kernel[(triton.cdiv(x.numel(), block),)](x, counts, x.numel(), BLOCK=block)
    return counts


def reference(x, *, bins):
    return torch.bincount(x, minlength=bins).to(torch.int32)


case = Case(
    name="histogram",
    without={"strided": "takes contiguous inputs"},
    run=histogram,
    reference=reference,
    inputs=lambda make, p: [make.integers((p.n,), 0, p.bins, "int32")],
    interpret=[{"n": 1, "bins": 1}, {"n": 1021, "bins": 7}, {"n": 4097, "bins": 256}],
    correctness=[{"n": n, "bins": b} for n, b in [(1, 1), (1021, 7), (4097, 256), (4097 * 4096, 1021)]],
    timing=[{"n": 1 << 24, "bins": 256}],
    bytes_moved=lambda p: 4 * p.n,
    competitor=reference,
    tags=["builtin", "memory-bound"],
)
