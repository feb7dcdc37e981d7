"""Vector add: the smallest memory-bound kernel, with a tail."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(x, y, *, block=1024):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


case = Case(
    name="vector_add",
    without={"strided": "takes contiguous inputs"},
    run=add,
    reference=torch.add,
    inputs=lambda make, p: [make.normal((p.n,), p.dtype), make.normal((p.n,), p.dtype)],
    axes={"dtype": ["fp32", "fp16", "bf16"]},
    compile=[{"n": 1 << 24, "dtype": "fp16"}],
    interpret=[{"n": 1, "dtype": "fp32"}, {"n": 1025, "dtype": "fp16"}, {"n": 7919, "dtype": "fp32"}],
    correctness=[{"n": n} for n in (1, 1023, 1024, 1025, 98432, 4097 * 4096, 16777259)],
    timing=[{"n": 1 << 24, "dtype": "fp32"}, {"n": 1 << 26, "dtype": "fp16"}],
    bytes_moved=lambda p: 3 * p.n * BYTES[p.dtype],
    competitor=torch.add,
    tags=["builtin", "memory-bound"],
)
