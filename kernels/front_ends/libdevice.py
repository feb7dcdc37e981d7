"""Functions of NVIDIA's libdevice by ``triton.language.extra``: error function and expm1; imported so from 3.0 on."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from matrix import Case


@triton.jit
def functions_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, libdevice.erf(x) + libdevice.expm1(x), mask=mask)


def functions(x, *, block=1024):
    out = torch.empty_like(x)
    functions_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


case = Case(
    name="libdevice",
    run=functions,
    reference=lambda x: torch.erf(x) + torch.expm1(x),
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    correctness=[{"n": 1}, {"n": 1023}, {"n": 98_432}],
    timing=[{"n": 1 << 24}],
    bytes_moved=lambda p: 8 * p.n,
    without={"strided": "takes contiguous inputs"},
    tags=["builtin", "front-end"],
)
