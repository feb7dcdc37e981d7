"""triton#7322: a changed ``tl.constexpr`` global does not recompile the kernel.

The same source with the module's constant edited from 7 to 11, as a second import of the file would see it. Up to 3.4.0
(the report says 3.3) the kernel's key leaves the constant's value out, so the code of the first is taken for the
second; right from 3.5. ``run`` looks into the compiled kernel whether its own constant is there.
https://github.com/triton-lang/triton/issues/7322
"""

import linecache
import types

import torch

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.5.1", "3.4.0"
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "case_error")}
FLAG = "case_error"

SOURCE = """
import triton
import triton.language as tl

FACTOR = tl.constexpr({factor})


@triton.jit
def scale_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * FACTOR)
"""


def imported(factor):
    """The module with that constant, as if its file had been edited."""
    module = types.ModuleType("scaled_by_a_constant")
    text = SOURCE.format(factor=factor)
    linecache.cache[module.__name__] = (len(text), None, text.splitlines(keepends=True), module.__name__)
    exec(compile(text, module.__name__, "exec"), vars(module))  # noqa: S102
    return module


def scale(x, *, block=256):
    for factor in (7.0, 11.0):
        out = torch.empty_like(x)
        compiled = imported(factor).scale_kernel[(x.numel() // block,)](x, out, BLOCK=block)
        if f"{factor:.6e}" not in compiled.asm["ttir"]:
            raise AssertionError(f"the kernel that multiplies by {factor} was compiled with another constant")
    return out


case = Case(
    name="regression_triton_7322",
    run=scale,
    reference=lambda x: 11 * x,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    targets=["sm_90"],
    expectations=[
        Expect(
            outcome="case_error",
            triton="<3.5",
            reason="the kernel's key leaves the values of tl.constexpr globals out",
            link="https://github.com/triton-lang/triton/issues/7322",
        ),
    ],
    tags=["regression"],
)
