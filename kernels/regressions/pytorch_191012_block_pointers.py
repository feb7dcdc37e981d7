"""pytorch#191012: block pointers are gone from 3.9.

``tl.make_block_ptr`` raises when it is compiled, although the name still imports (so ``hasattr`` shows
nothing); ``tl.advance`` is gone. Inductor's ``use_block_ptr`` and many attention kernels need them. Good up
to 3.8.0, an error in 3.9.0, by design.
https://github.com/pytorch/pytorch/issues/191012, https://github.com/triton-lang/triton/pull/10833
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
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (n,), (1,), (first,), (BLOCK,), (0,))
    out_block = tl.make_block_ptr(out_ptr, (n,), (1,), (first,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,), padding_option="zero")
    tl.store(out_block, x * 2, boundary_check=(0,))


def double(x, *, block=256):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


GONE = "block pointers were removed in 3.9: use tensor descriptors or pointers with a mask"
LINK = "https://github.com/pytorch/pytorch/issues/191012"

case = Case(
    name="regression_pytorch_191012",
    run=double,
    reference=lambda x: x * 2,
    inputs=lambda make, p: [make.normal((p.n,), "fp32")],
    interpret=[{"n": 1000}],
    expectations=[
        Expect(outcome="compile_error", triton=">=3.9", reason=GONE, link=LINK),
        Expect(stage="interpret", outcome="run_error", triton=">=3.9", reason=GONE, link=LINK),
    ],
    tags=["regression"],
)
