"""Persistent matrix product: one program per multiprocessor walks over the tiles."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp16": 2, "bf16": 2}


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        group = tile // (GROUP * tiles_n)
        group_rows = min(tiles_m - group * GROUP, GROUP)
        within = tile % (GROUP * tiles_n)
        m = (group * GROUP + within % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = (within // group_rows) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
            total = tl.dot(a, b, total)
        tl.store(c_ptr + m * N + n, total.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def matmul_persistent(a, b, *, programs=0, block_m=128, block_n=128, block_k=64):
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    programs = programs or torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    persistent_kernel[(min(programs, tiles),)](
        a, b, c, M, N, K,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8, num_warps=8, num_stages=3,
    )  # fmt: skip
    return c


case = Case(
    name="matmul_persistent",
    without={"strided": "takes contiguous inputs"},
    run=matmul_persistent,
    reference=torch.matmul,
    inputs=lambda make, p: [make.normal((p.m, p.k), p.dtype), make.normal((p.k, p.n), p.dtype)],
    axes={"dtype": ["fp16", "bf16"]},
    interpret=[
        {"m": 1, "n": 1, "k": 1, "programs": 2, "dtype": "fp16"},
        {"m": 131, "n": 97, "k": 67, "programs": 2, "block_m": 64, "block_n": 64, "dtype": "fp16"},
    ],
    correctness=[
        {"m": m, "n": n, "k": k} for m, n, k in [(1, 1, 1), (257, 131, 67), (1009, 1021, 1013), (4097, 4096, 4096)]
    ],
    timing=[{"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}],
    bytes_moved=lambda p: (p.m * p.k + p.k * p.n + p.m * p.n) * BYTES[p.dtype],
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=torch.matmul,
    tags=["builtin", "compute-bound"],
)
