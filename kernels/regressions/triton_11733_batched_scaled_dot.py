"""triton#11733: a batched ``tl.dot_scaled`` fails on sm_120.

Three-dimensional mxfp4 operands with one scale for 32 elements. 3.6.0 to 3.8.0 fail for sm_120, 3.9.0 compiles.
https://github.com/triton-lang/triton/issues/11733, repaired by https://github.com/triton-lang/triton/pull/11262
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.8.0"
TARGET = "sm_120"
PARAMS = {}
FIGURE = {"outcome": ("passed", "compile_error")}
FLAG = "compile_error"


@triton.jit
def dot_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr,
    B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    batch = tl.arange(0, B)[:, None, None]
    m, n = tl.arange(0, M)[None, :, None], tl.arange(0, N)
    packed, groups = tl.arange(0, K // 2), tl.arange(0, K // 32)[None, None, :]
    a = tl.load(a_ptr + (batch * M + m) * (K // 2) + packed[None, None, :])
    b = tl.load(b_ptr + (batch * (K // 2) + packed[None, :, None]) * N + n[None, None, :])
    a_scale = tl.load(a_scale_ptr + (batch * M + m) * (K // 32) + groups)
    b_scale = tl.load(b_scale_ptr + (batch * N + n[None, :, None]) * (K // 32) + groups)
    out = tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1")
    tl.store(out_ptr + (batch * M + m) * N + n[None, None, :], out)


def dot(a, a_scale, b, b_scale):
    batches, m, half = a.shape
    n = b.shape[2]
    out = torch.empty((batches, m, n), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, a_scale, b, b_scale, out, B=batches, M=m, N=n, K=2 * half)
    return out


case = Case(
    name="regression_triton_11733",
    run=dot,
    inputs=lambda make, _: [
        make.integers((2, 128, 32), 0, 256, "uint8"),
        make.integers((2, 128, 2), 120, 130, "uint8"),
        make.integers((2, 32, 128), 0, 256, "uint8"),
        make.integers((2, 128, 2), 120, 130, "uint8"),
    ],
    triton=">=3.6",
    targets=["sm_100", "sm_120"],
    tags=["regression"],
)
