"""triton#5265: two dots back to back abort the compiler with eight warps on Hopper.

Only nightlies of September to December 2024 had it; every release from 3.0.0 to 3.9.0 compiles this shape, so
it is a sentinel with no bad release. triton#5609 and xla#19780 (wrong values) are its siblings.
https://github.com/triton-lang/triton/issues/5265
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.9.0", ""
TARGET = "sm_90"
PARAMS = {}
FIGURE = {"outcome": ("passed", "passed")}


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, M: tl.constexpr, D: tl.constexpr):
    rows, dims = tl.arange(0, M), tl.arange(0, D)
    tile = rows[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + tile)
    k = tl.load(k_ptr + dims[:, None] + rows[None, :] * D)
    v = tl.load(v_ptr + tile)
    scores = tl.dot(q, k).to(tl.bfloat16)
    tl.store(out_ptr + tile, tl.dot(scores, v).to(tl.bfloat16))


def attention(q, k, v):
    m, d = q.shape
    out = torch.empty_like(q)
    attention_kernel[(1,)](q, k, v, out, M=m, D=d, num_warps=8)
    return out


case = Case(
    name="regression_triton_5265",
    run=attention,
    inputs=lambda make, _: [make.full((64, 128), 1.0, "bf16")] * 3,
    targets=["sm_90"],
    tags=["regression", "sentinel"],
)
