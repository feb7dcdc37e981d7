"""triton#11733: mxfp4 operands packed along M and N give garbage on sm_120.

``tl.dot_scaled`` of fp4 values of which two neighbours along M (left) or N (right) share a byte. sm_120's fp4
instruction wants them packed along K: up to 3.8.0 it is used all the same, with half the products; 3.9.0 unpacks to
bf16 as it must. The wrong values take a GPU to see (524214 of 524288 elements, says the report), the instruction does
not; no rule flags it, because to read off the code 3.8.0 is merely the faster of the two.
https://github.com/triton-lang/triton/issues/11733, repaired by https://github.com/triton-lang/triton/pull/10726
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"
GOOD, BAD = "3.9.0", "3.8.0"
TARGET = "sm_120"
PARAMS = {}
FIGURE = {"matrix_ops": ({"mma.m16n8k16.f32.bf16.bf16": 256}, {"mma.m16n8k64.kind::mxf4nvf4.f32.e2m1.e2m1": 32})}


@triton.jit
def dot_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    groups = tl.arange(0, K // 32)[None, :]
    a = tl.load(a_ptr + tl.arange(0, M // 2)[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + groups)
    b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + groups)
    out = tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1", lhs_k_pack=False, rhs_k_pack=False)
    tl.store(out_ptr + m[:, None] * N + n[None, :], out)


def dot(a, a_scale, b, b_scale):
    k, m, n = a.shape[1], 2 * a.shape[0], 2 * b.shape[1]
    out = torch.empty((m, n), dtype=torch.float32, device=a.device)
    dot_kernel[(1,)](a, a_scale, b, b_scale, out, M=m, N=n, K=k)
    return out


case = Case(
    name="regression_triton_11733_packed",
    run=dot,
    inputs=lambda make, _: [
        make.integers((64, 128), 0, 256, "uint8"),
        make.integers((128, 4), 120, 130, "uint8"),
        make.integers((128, 64), 0, 256, "uint8"),
        make.integers((128, 4), 120, 130, "uint8"),
    ],
    triton=">=3.6",
    targets=["sm_120"],
    tags=["regression"],
)
