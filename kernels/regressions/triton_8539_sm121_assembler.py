"""triton#8539: the assembler of the wheel does not know sm_121.

Any kernel, here a vector addition, compiled for a DGX Spark. Whether it builds depends on the ptxas in the wheel alone:
12.8 in 3.3 to 3.5 says that sm_121a is not defined, the second one of 3.6.0 (12.9) takes it. sm_103 fared alike.
https://github.com/triton-lang/triton/issues/8539
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.6.0", "3.5.1"
TARGET = "sm_121"
PARAMS = {}
FIGURE = {"outcome": ("passed", "unsupported")}
FLAG = "unsupported"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask, other=0.0), mask=mask)


def add(x, y, *, block=1024):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


# What sm_121 and sm_103 lack before 3.6 is known of those releases, whatever the case (matrix/data/releases.toml).
case = Case(
    name="regression_triton_8539",
    run=add,
    reference=lambda x, y: x + y,
    inputs=lambda make, _: [make.normal((98_432,), "fp32"), make.normal((98_432,), "fp32")],
    targets=["sm_90", "sm_103", "sm_121"],
    tags=["regression"],
)
