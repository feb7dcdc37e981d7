"""triton#11905: a pipelined load moves ahead of the wait for the kernel before (dependent launch).

A producer lets its dependent start, waits a while and writes ones. The consumer waits for it (``gdc_wait``) inside its
loop, before the load of what the producer writes. With two stages the loop's first loads go ahead of the loop, and of
the wait: the consumer reads what was there before. Seen with 3.7.1 on an H20; right with one stage, and with the wait
before the loop.
https://github.com/triton-lang/triton/issues/11905
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda

from matrix import Case

STAGE = "correctness"  # a race of two kernels
GOOD, BAD = "3.7.1", "3.7.1"
TARGET = "sm_90"
PARAMS = {"k": 1024, "wait": "in_loop", "stages": 1}
BAD_PARAMS = {"k": 1024, "wait": "in_loop", "stages": 2}
FIGURE = {"outcome": ("passed", "wrong or nondeterministic")}  # the race may be won


@triton.jit
def producer_kernel(x_ptr, n, NANOSECONDS: tl.constexpr, BLOCK: tl.constexpr):
    cuda.gdc_launch_dependents()
    started = cuda.globaltimer()
    while cuda.globaltimer() - started < NANOSECONDS:
        started += 0
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.full((BLOCK,), 1.0, x_ptr.dtype.element_ty), mask=at < n)


@triton.jit
def consumer_kernel(x_ptr, w_ptr, out_ptr, n, k, IN_LOOP: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    row, step = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    if not IN_LOOP:
        cuda.gdc_wait()
    for start in range(0, k, BLOCK_K):
        w = tl.load(w_ptr + (start + step[:, None]) * n + col[None, :])
        if IN_LOOP:
            cuda.gdc_wait()
        x = tl.load(x_ptr + row[:, None] * k + start + step[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(out_ptr + row[:, None] * n + col[None, :], acc)


def product_of_ones(w, *, wait, stages):
    k, n = w.shape
    x = torch.zeros((64, k), dtype=w.dtype, device=w.device)
    out = torch.empty((64, n), dtype=torch.float32, device=w.device)
    producer_kernel[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), NANOSECONDS=50_000, BLOCK=1024, launch_pdl=True)
    consumer_kernel[(n // 64,)](
        x, w, out, n, k, IN_LOOP=wait == "in_loop", BLOCK=64, BLOCK_K=64, num_warps=4, num_stages=stages,
        launch_pdl=True,
    )  # fmt: skip
    return out


case = Case(
    name="regression_triton_11905",
    without={"strided": "takes contiguous inputs"},
    run=product_of_ones,
    reference=lambda w: w.sum(0, keepdim=True).expand(64, -1).contiguous(),
    inputs=lambda make, p: [make.integers((p.k, 256), -2, 3, "fp16")],
    axes={"wait": ["in_loop", "before"], "stages": [1, 2]},
    correctness=[{"k": 1024}],
    triton=">=3.4",
    targets=["sm_90"],
    tags=["regression"],
)
