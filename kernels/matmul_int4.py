"""Matrix product with 4-bit weights, dequantised on the way: eight weights a word along K, a scale a group."""

import torch
import triton
import triton.language as tl

from matrix import Case


@triton.jit
def matmul_int4_kernel(
    a_ptr, packed_ptr, scale_ptr, c_ptr, M, N, K,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        row, col = k[:, None], k[None, :]
        a = tl.load(a_ptr + m * K + col, mask=(m < M) & (col < K), other=0.0)
        packed = tl.load(packed_ptr + (row // 8) * N + n, mask=(row < K) & (n < N), other=0)
        scale = tl.load(scale_ptr + (start // GROUP) * N + n, mask=n < N, other=0.0)
        weight = ((packed >> ((row % 8) * 4)) & 0xF) - 8
        total = tl.dot(a, (weight.to(tl.float32) * scale.to(tl.float32)).to(tl.float16), total)
    tl.store(c_ptr + m * N + n, total.to(tl.float16), mask=(m < M) & (n < N))


def matmul_int4(a, packed, scales, *, group=128, block_m=16, block_n=64):
    M, K, N = *a.shape, packed.shape[1]
    c = torch.empty((M, N), dtype=torch.float16, device=a.device)
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_int4_kernel[grid](
        a, packed, scales, c, M, N, K, GROUP=group, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=min(group, 64)
    )
    return c


def reference(a, packed, scales, *, group=128):
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=packed.dtype)
    weights = ((packed[:, None] >> shifts[:, None]) & 0xF) - 8
    scale = scales.repeat_interleave(group, 0)[: a.shape[1]]
    return a @ (weights.reshape(-1, packed.shape[1])[: a.shape[1]].to(a.dtype) * scale)


case = Case(
    name="matmul_int4",
    without={"strided": "takes contiguous inputs"},
    run=matmul_int4,
    reference=reference,
    inputs=lambda make, p: [
        make.normal((p.m, p.k), "fp16"),
        make.integers((triton.cdiv(p.k, 8), p.n), -(2**31), 2**31, "int32"),
        make.uniform((triton.cdiv(p.k, p.group), p.n), "fp16", low=0.01, high=0.03),
    ],
    axes={"group": [128]},
    interpret=[{"m": 1, "n": 1, "k": 8}, {"m": 17, "n": 67, "k": 200}],
    correctness=[
        {"m": m, "n": n, "k": k} for m, n, k in [(1, 1, 8), (17, 67, 200), (1, 4097, 4096), (127, 1021, 1013)]
    ],
    timing=[{"m": 16, "n": 8192, "k": 8192}],
    bytes_moved=lambda p: p.k * p.n / 2 + 2 * (p.m * p.k + p.m * p.n + p.k * p.n / p.group),
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=reference,
    tags=["builtin", "memory-bound"],
)
