"""mamba#377: ``tl.math.log1p`` is gone.

Softplus by log1p. Good in 2.1 to 2.3, an AttributeError from 3.0.0. The repair, log(exp(x) + 1), compiles
everywhere and loses what is small: below about -16 it gives 0 in fp32. ``libdevice.log1p`` is the other way.
https://github.com/state-spaces/mamba/pull/377
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "2.3.1", "3.0.0"
TARGET = "sm_90"
PARAMS = {"spelling": "math"}
FIGURE = {"outcome": ("passed", "compile_error")}


@triton.jit
def softplus_math(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.math.log1p(tl.exp(tl.load(x_ptr + offsets))))


@triton.jit
def softplus_libdevice(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, libdevice.log1p(tl.exp(tl.load(x_ptr + offsets))))


KERNELS = {"math": softplus_math, "libdevice": softplus_libdevice}


def softplus(x, *, spelling, block=256):
    out = torch.empty_like(x)
    KERNELS[spelling][(x.numel() // block,)](x, out, BLOCK=block)
    return out


case = Case(
    name="regression_mamba_377",
    run=softplus,
    reference=torch.nn.functional.softplus,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    compile=[{"spelling": "math"}, {"spelling": "libdevice"}],
    expectations=[
        Expect(
            outcome="compile_error",
            triton=">=3.0",
            params={"spelling": "math"},
            reason="tl.math.log1p moved to tl.extra.libdevice in 3.0",
            link="https://github.com/state-spaces/mamba/pull/377",
        ),
    ],
    tags=["regression"],
)
