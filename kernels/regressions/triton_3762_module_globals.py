"""triton#3762: a kernel may read a module's global only where that is a ``tl.constexpr`` object.

Three spellings, broken by two releases: the plain int by 3.0.0, the annotated one (``x: tl.constexpr = 4``)
by 3.3.0 (triton#5961). ``tl.constexpr(4)`` compiles everywhere. Both are by design; FlagGems#118,
fms-acceleration#148 and tritonbench#245 met them.
https://github.com/triton-lang/triton/pull/3762
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.2.0", "3.3.1"
TARGET = "sm_90"
PARAMS = {"spelling": "annotated"}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"

PLAIN = 4
ANNOTATED: tl.constexpr = 4
WRAPPED = tl.constexpr(4)


@triton.jit
def scale_plain(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * PLAIN)


@triton.jit
def scale_annotated(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * ANNOTATED)


@triton.jit
def scale_wrapped(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * WRAPPED)


KERNELS = {"plain": scale_plain, "annotated": scale_annotated, "wrapped": scale_wrapped}


def scale(x, *, spelling, block=256):
    out = torch.empty_like(x)
    KERNELS[spelling][(x.numel() // block,)](x, out, BLOCK=block)
    return out


LINK = "https://github.com/triton-lang/triton/pull/3762"

case = Case(
    name="regression_triton_3762",
    run=scale,
    reference=lambda x: x * 4,
    inputs=lambda make, _: [make.normal((1024,), "fp32")],
    compile=[{"spelling": "plain"}, {"spelling": "annotated"}, {"spelling": "wrapped"}],
    expectations=[
        Expect(
            outcome="compile_error",
            triton=">=3.0",
            params={"spelling": "plain"},
            reason="from 3.0 a kernel cannot read a plain global",
            link=LINK,
        ),
        Expect(
            outcome="compile_error",
            triton=">=3.3",
            params={"spelling": "annotated"},
            reason="from 3.3 an annotation does not make a global a constexpr",
            link=LINK,
        ),
    ],
    tags=["regression"],
)
