"""A product of block-scaled fp8 operands (``tl.dot_scaled``: one power of two for 32 elements); in this form from 3.3.

sm_100 multiplies them as they are, other targets convert first.
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Tolerance


@triton.jit
def dot_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr, N_TOTAL,
    K_TOTAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K_TOTAL, K):
        k = start + tl.arange(0, K)
        group = start // 32 + tl.arange(0, K // 32)
        a = tl.load(a_ptr + m[:, None] * K_TOTAL + k[None, :])
        b = tl.load(b_ptr + n[None, :] * K_TOTAL + k[:, None])  # stored as [N, K]
        a_scale = tl.load(a_scale_ptr + m[:, None] * (K_TOTAL // 32) + group[None, :])
        b_scale = tl.load(b_scale_ptr + n[:, None] * (K_TOTAL // 32) + group[None, :])
        total = tl.dot_scaled(a, a_scale, "e5m2", b, b_scale, "e5m2", total)
    tl.store(out_ptr + m[:, None] * N_TOTAL + n[None, :], total)


def dot(a, a_scale, b, b_scale, *, block=128):
    (rows, inner), cols = a.shape, b.shape[0]
    out = torch.empty((rows, cols), dtype=torch.float32, device=a.device)
    grid = (rows // block, cols // block)
    dot_kernel[grid](a, a_scale, b, b_scale, out, cols, K_TOTAL=inner, M=block, N=block, K=128, num_warps=8)
    return out


def reference(a, a_scale, b, b_scale):
    a, b = (
        values.double() * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)
        for values, scales in ((a, a_scale), (b, b_scale))
    )
    return a @ b.T


def inputs(make, p):
    tensors = []
    for rows in (p.m, p.n):
        tensors += [make.normal((rows, p.k), "fp8e5"), make.integers((rows, p.k // 32), 125, 130, "uint8")]
    return tensors


case = Case(
    name="dot_scaled",
    run=dot,
    reference=reference,
    inputs=inputs,
    correctness=[{"m": 128, "n": 256, "k": 384}],
    timing=[{"m": 4096, "n": 4096, "k": 4096}],
    # Sums of 4096 products have a size of some 400: on an H200 they were off by 0.002 at most, in every release from
    # 3.4.0 to 3.9.0 alike, and one group of 32 with a wrong scale would be off by tens.
    tolerance=Tolerance(atol=5e-2, rtol=1e-4),
    flops=lambda p: 2 * p.m * p.n * p.k,
    without={"strided": "takes contiguous inputs"},
    triton=">=3.3",
    tags=["builtin", "front-end"],
)
