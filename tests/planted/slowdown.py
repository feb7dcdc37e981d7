"""Work that can be made a little slower: ``extra`` per cent more bytes or more arithmetic. For timing only."""

import torch
import triton
import triton.language as tl

from matrix import Case


@triton.jit
def stream_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def stream(x):
    out = torch.empty_like(x)
    stream_kernel[(triton.cdiv(x.numel(), 2048),)](x, out, x.numel(), BLOCK=2048)
    return out


@triton.jit
def spin_fma_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = x
    for _ in range(steps):
        y = y * 0.999 + x
    tl.store(out_ptr + at, y)


def fma(x, *, steps, extra):
    out = torch.empty_like(x)
    spin_fma_kernel[(x.numel() // 1024,)](x, out, round(steps * (1 + extra / 100)), BLOCK=1024)
    return out


cases = [
    Case(
        name="planted_stream",
        run=stream,
        inputs=lambda make, p: [make.zeros((round(p.n * (1 + p.extra / 100)) // 2048 * 2048,), "fp32") + 1.5],
        timing=[{"n": n, "extra": extra} for n in (1 << 24, 1 << 26) for extra in (0, 1, 2, 5)],
    ),
    Case(
        name="planted_fma",
        run=fma,
        inputs=lambda make, p: [make.zeros((p.n,), "fp32") + 1.5],
        timing=[{"n": n, "steps": 800, "extra": extra} for n in (1 << 18, 1 << 21) for extra in (0, 1, 2, 5)],
    ),
]
