"""triton#11741: ``tl.histogram`` of int64 fails inside the compiler up to 3.8, with a clear message from 3.9.

No release compiles it. What changes is the kind of failure: "PassManager::run failed" up to 3.8.0, a
diagnostic of the front end that names the type in 3.9.0. A matrix that keeps only pass and fail sees nothing.
https://github.com/triton-lang/triton/pull/11741, https://github.com/triton-lang/triton/pull/10891
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.8.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"reason": ("32-bit", "PassManager")}


@triton.jit
def histogram_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr, BINS: tl.constexpr):
    counts = tl.histogram(tl.load(x_ptr + tl.arange(0, BLOCK)), BINS)
    tl.store(out_ptr + tl.arange(0, BINS), counts)


def histogram(x, *, bins=16):
    out = torch.empty((bins,), dtype=torch.int32, device=x.device)
    histogram_kernel[(1,)](x, out, BLOCK=x.numel(), BINS=bins)
    return out


case = Case(
    name="regression_triton_11741e",
    run=histogram,
    inputs=lambda make, _: [make.integers((512,), 0, 16, "int64")],
    expectations=[
        Expect(
            outcome="compile_error",
            reason="no release takes the histogram of int64; 3.9 says so",
            link="https://github.com/triton-lang/triton/pull/11741",
        ),
    ],
    tags=["regression"],
)
