"""An autotuned matrix product: its configurations are compiled as an axis of their own.

Not all of them fit every target: sm_120 has 99 KiB of shared memory a block, sm_80 163 and the others 227.
"""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp16": 2, "bf16": 2}


def config(block_m, block_n, block_k, warps, stages):
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


@triton.autotune(
    configs=[
        config(64, 64, 32, warps=4, stages=3),
        config(128, 128, 64, warps=8, stages=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    k = tl.arange(0, BLOCK_K)
    # Rows and columns past the end wrap around: their products are computed and not stored.
    a_ptrs = a_ptr + (m % M) * K + k[None, :]
    b_ptrs = b_ptr + k[:, None] * N + n % N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=k[None, :] < K - start, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - start, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + m * N + n, total.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def matmul(a, b):
    assert a.is_contiguous() and b.is_contiguous(), "rows must follow one another"
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))](a, b, c, M, N, K)
    return c


case = Case(
    name="matmul_autotuned",
    run=matmul,
    reference=torch.matmul,
    inputs=lambda make, p: [make.normal((p.m, p.k), p.dtype), make.normal((p.k, p.n), p.dtype)],
    axes={"dtype": ["fp16", "bf16"]},
    # Under the interpreter by the first configuration: there is nothing to choose one by.
    interpret=[{"m": m, "n": n, "k": k, "dtype": "fp16"} for m, n, k in [(1, 1, 1), (67, 35, 33)]],
    correctness=[{"m": m, "n": n, "k": k} for m, n, k in [(1, 1, 1), (129, 127, 193), (1009, 1021, 1013)]],
    timing=[{"m": 4096, "n": 4096, "k": 4096, "dtype": "fp16"}],
    bytes_moved=lambda p: (p.m * p.k + p.k * p.n + p.m * p.n) * BYTES[p.dtype],
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=torch.matmul,
    tags=["builtin", "compute-bound"],
)
