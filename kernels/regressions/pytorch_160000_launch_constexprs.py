"""pytorch#160000: a launch takes about 10 us more with 3.3, whose calling convention carries the constexprs.

Inductor calls the compiled kernel itself and rebuilt its argument list for each launch, to put the constexpr values
in their places; torch 2.9 no longer does. Here a kernel of sixteen constexprs is launched as a user does, so that what
is seen is the share of Triton's own launcher; ``n`` is large enough for the kernel itself to be timed.
https://github.com/pytorch/pytorch/pull/160000
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "timing"  # the host time of a launch is taken where there is something to launch on
GOOD, BAD = "3.2.0", "3.3.1"
TARGET = "sm_90"
PARAMS = {"n": 16_777_216}
FIGURE = {"reason_code": ("", "launch_slower")}


@triton.jit
def constexprs_kernel(
    x_ptr, y_ptr, out_ptr, n,
    A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr, E: tl.constexpr, F: tl.constexpr,
    G: tl.constexpr, H: tl.constexpr, J: tl.constexpr, K: tl.constexpr, L: tl.constexpr, M: tl.constexpr,
    P: tl.constexpr, Q: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, x + y, mask=mask)


def add(x, y, *, block=1024):
    out = torch.empty_like(x)
    n = x.numel()
    constexprs_kernel[(triton.cdiv(n, block),)](
        x, y, out, n, A=1, B=2, C=3, D=True, E=False, F=None, G=0.5, H="text", J=16, K=64, L=128, M=1 << 20,
        P=-1, Q="rows", R=7, BLOCK=block,
    )  # fmt: skip
    return out


case = Case(
    name="regression_pytorch_160000",
    without={"strided": "takes contiguous inputs"},
    run=add,
    reference=torch.add,
    inputs=lambda make, p: [make.normal((p.n,), "fp32") for _ in range(2)],
    interpret=[{"n": 2053}],
    correctness=[{"n": 2053}, {"n": 98_432}],
    timing=[{"n": 1 << 24}],
    bytes_moved=lambda p: 3 * 4 * p.n,
    targets=["sm_90"],
    tags=["regression"],
)
