"""xla#19780: two dots back to back give wrong values on Hopper with eight warps.

The kernel of triton#5265 with ones as input: every output must be 64 * 128 = 8192, which bf16 holds exactly. XLA
was at a commit of late 2024 and no wheel is known to be wrong: 3.2.0, the nearest, is the one to look at.
https://github.com/openxla/xla/issues/19780
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # wrong values of a warp-group product: only the GPU has them
GOOD, BAD = "3.9.0", "3.2.0"
TARGET = "sm_90"
PARAMS = {"batch": 1, "warps": 8, "dtype": "bf16"}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def two_dots_kernel(q_ptr, k_ptr, v_ptr, out_ptr, M: tl.constexpr, D: tl.constexpr):
    rows, dims = tl.arange(0, M), tl.arange(0, D)
    base = tl.program_id(0).to(tl.int64) * M * D
    tile = base + rows[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + tile)
    k = tl.load(k_ptr + base + dims[:, None] + rows[None, :] * D)
    v = tl.load(v_ptr + tile)
    scores = tl.dot(q, k).to(v.dtype)
    tl.store(out_ptr + tile, tl.dot(scores, v).to(v.dtype))


def two_dots(q, k, v, *, warps):
    batch, m, d = q.shape
    out = torch.empty_like(q)
    two_dots_kernel[(batch,)](q, k, v, out, M=m, D=d, num_warps=warps)
    return out


case = Case(
    name="regression_xla_19780",
    without={"strided": "takes contiguous inputs"},
    run=two_dots,
    reference=lambda q, k, v: q @ k.transpose(1, 2) @ v,
    inputs=lambda make, p: [make.full((p.batch, 64, 128), 1.0, p.dtype) for _ in range(3)],
    axes={"warps": [4, 8], "dtype": ["bf16", "fp16"]},
    # In fp16: the interpreter multiplies the bits of bf16, which is triton#11584.
    interpret=[{"batch": 1, "warps": 8, "dtype": "fp16"}],
    correctness=[{"batch": 1}, {"batch": 133}],
    timing=[{"batch": 4096, "warps": 8, "dtype": "bf16"}],
    bytes_moved=lambda p: 4 * p.batch * 64 * 128 * 2,
    targets=["sm_90"],
    tags=["regression"],
)
