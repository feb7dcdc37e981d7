"""Matrix product by pointers: tiles in groups for L2 reuse, every tail masked, K included."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP * tiles_n)
    group_rows = min(tiles_m - group * GROUP, GROUP)
    within = pid % (GROUP * tiles_n)
    m = (group * GROUP + within % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (within // group_rows) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b, *, block_m=128, block_n=128, block_k=64, num_stages=3):
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, block_m) * triton.cdiv(N, block_n),)
    matmul_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8, num_warps=8, num_stages=num_stages,
    )  # fmt: skip
    return c


SMALL = {"block_m": 32, "block_n": 32, "block_k": 32, "num_stages": 2}  # fp32 in 128-wide tiles would not fit

case = Case(
    name="matmul",
    run=matmul,
    reference=torch.matmul,
    inputs=lambda make, p: [make.normal((p.m, p.k), p.dtype), make.normal((p.k, p.n), p.dtype)],
    axes={"dtype": ["fp16", "bf16"]},
    interpret=[
        {"m": 1, "n": 1, "k": 1, "dtype": "fp16"},
        {"m": 129, "n": 127, "k": 193, "dtype": "fp16"},
        {"m": 61, "n": 67, "k": 97, "dtype": "fp32", **SMALL},
    ],
    correctness=[
        *({"m": m, "n": n, "k": k} for m, n, k in [(1, 1, 1), (129, 127, 193), (1009, 1021, 1013), (4097, 4096, 4096)]),
        {"m": 61, "n": 67, "k": 97, "dtype": "fp32", **SMALL},
    ],
    timing=[{"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}],
    bytes_moved=lambda p: (p.m * p.k + p.k * p.n + p.m * p.n) * BYTES[p.dtype],
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=torch.matmul,
    tags=["builtin", "compute-bound"],
)
