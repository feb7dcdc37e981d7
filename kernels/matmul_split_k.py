"""Split-K matrix product: few rows and a long K, the programs' shares added with atomics."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp16": 2, "bf16": 2}


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, K, BLOCK_K * SPLIT):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.atomic_add(c_ptr + m * N + n, total, mask=(m < M) & (n < N), sem="relaxed")


def matmul_split_k(a, b, *, split, block_m=16, block_n=64, block_k=128):
    M, K, N = *a.shape, b.shape[1]
    c = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n), split)
    split_k_kernel[grid](a, b, c, M, N, K, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, SPLIT=split, num_stages=4)
    return c


def reference(a, b):
    return torch.matmul(a, b)


case = Case(
    name="matmul_split_k",
    without={"strided": "takes contiguous inputs"},
    run=matmul_split_k,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.m, p.k), p.dtype), make.normal((p.k, p.n), p.dtype)],
    axes={"dtype": ["fp16", "bf16"]},
    interpret=[
        {"m": 1, "n": 1, "k": 1, "split": 1, "dtype": "fp16"},
        {"m": 17, "n": 61, "k": 1021, "split": 4, "dtype": "fp16"},
    ],
    correctness=[
        {"m": m, "n": n, "k": k, "split": split}
        for m, n, k, split in [(1, 1, 1, 1), (17, 61, 1021, 4), (1, 4097, 4096, 8), (16, 4096, 16384, 16)]
    ],
    timing=[{"m": 16, "n": 4096, "k": 16384, "split": 8, "dtype": "fp16"}],
    bytes_moved=lambda p: (p.m * p.k + p.k * p.n) * BYTES[p.dtype] + 4 * p.m * p.n * (p.split + 1),
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=reference,
    deterministic=False,  # the order of floating-point atomics
    tags=["builtin", "memory-bound"],
)
