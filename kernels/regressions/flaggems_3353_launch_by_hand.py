"""FlagGems#3353: a launch made by hand leaves constexpr arguments out from 3.7 on.

A library keeps the compiled kernel of the first launch and calls it itself from then on. Which arguments that call
takes it goes by the release: with the constexprs from 3.3 to 3.6, by a test that ends there, and without them before
and after. From 3.7.0 the call dies: no fault of the compiler, and a break that every version of a matrix shows. A
constexpr that comes last is not missed (seen on an H200 with 3.7.1), so here it does not.
https://github.com/FlagOpen/FlagGems/issues/3353
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # nothing is launched without a GPU
GOOD, BAD = "3.6.0", "3.7.1"
TARGET = "sm_90"
PARAMS = {"n": 100_000}
FIGURE = {"outcome": ("passed", "crash or run_error")}

RELEASE = tuple(int(part) for part in triton.__version__.split(".")[:2])
TAKES_CONSTEXPRS = (3, 3) <= RELEASE <= (3, 6)


@triton.jit
def add_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr, out_ptr, n):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + at, x + tl.load(y_ptr + at, mask=mask, other=0.0), mask=mask)


def add(x, y, *, block=1024):
    grid = (triton.cdiv(x.numel(), block), 1, 1)
    out = torch.empty_like(x)
    compiled = add_kernel[grid](x, y, block, out, x.numel())
    if x.is_cuda:
        out = torch.empty_like(x)
        compiled[grid](x, y, *([block] if TAKES_CONSTEXPRS else []), out, x.numel())
    return out


case = Case(
    name="regression_flaggems_3353",
    without={"strided": "takes contiguous inputs"},
    run=add,
    reference=torch.add,
    inputs=lambda make, p: [make.normal((p.n,), "fp32") for _ in range(2)],
    correctness=[{"n": 100_000}],
    targets=["sm_90"],
    tags=["regression"],
)
