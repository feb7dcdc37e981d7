"""triton#4938: ``tl.math.tanh`` is gone.

GELU by its tanh approximation. In 2.1 to 2.3 the function is ``tl.math.tanh``; 3.0.0 moved everything but a
few natives to ``tl.extra.libdevice``. Good in 2.x, which no environment here has, so the two spellings are
two points: the old one is expected to fail, the new one to compile.
https://github.com/triton-lang/triton/issues/4938
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
def gelu_math(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 0.5 * x * (1 + tl.math.tanh(0.79788456 * (x + 0.044715 * x * x * x))))


@triton.jit
def gelu_libdevice(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, 0.5 * x * (1 + libdevice.tanh(0.79788456 * (x + 0.044715 * x * x * x))))


KERNELS = {"math": gelu_math, "libdevice": gelu_libdevice}


def gelu(x, *, spelling, block=256):
    out = torch.empty_like(x)
    KERNELS[spelling][(x.numel() // block,)](x, out, BLOCK=block)
    return out


case = Case(
    name="regression_triton_4938",
    run=gelu,
    reference=lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    compile=[{"spelling": "math"}, {"spelling": "libdevice"}],
    expectations=[
        Expect(
            outcome="compile_error",
            triton=">=3.0",
            params={"spelling": "math"},
            reason="tl.math.tanh moved to tl.extra.libdevice in 3.0",
            link="https://github.com/triton-lang/triton/issues/4938",
        ),
    ],
    tags=["regression"],
)
