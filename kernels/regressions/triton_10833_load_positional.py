"""triton#10833: in 3.9 only ``mask`` and ``other`` of ``tl.load`` may be given by position.

With the block pointers went ``boundary_check`` and ``padding_option``, and what follows ``other`` became
keyword-only: a load that passes its cache modifier by position "takes from 1 to 3 positional arguments". Good
up to 3.8.0, an error in 3.9.0, by design.
https://github.com/triton-lang/triton/pull/10833
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.8.0", "3.9.0"
TARGET = "sm_90"
PARAMS = {"n": 1000}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask, 0.0, (), "", ".cg")
    tl.store(out_ptr + offsets, x, mask)


def copy(x, *, block=256):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


KEYWORDS = "from 3.9 the arguments of tl.load after other are keyword-only"
LINK = "https://github.com/triton-lang/triton/pull/10833"

case = Case(
    name="regression_triton_10833",
    run=copy,
    reference=lambda x: x,
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    interpret=[{"n": 1000}],
    expectations=[
        Expect(outcome="compile_error", triton=">=3.9", reason=KEYWORDS, link=LINK),
        Expect(stage="interpret", outcome="run_error", triton=">=3.9", reason=KEYWORDS, link=LINK),
    ],
    tags=["regression"],
)
