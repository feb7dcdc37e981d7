"""Matrix product through TMA descriptors made on the host; B is stored transposed, as linear layers do."""

import torch
import triton
import triton.language as tl

from matrix import Case


@triton.jit
def matmul_tma_kernel(a, b, c, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a.load([m, k]), b.load([n, k]).T, total)
    c.store([m, n], total.to(tl.float16))


def matmul_tma(a, b, *, block_m=128, block_n=128, block_k=64):
    from triton.tools.tensor_descriptor import TensorDescriptor  # not there before 3.4

    M, K, N = *a.shape, b.shape[0]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    a_tiles = TensorDescriptor.from_tensor(a, [block_m, block_k])
    b_tiles = TensorDescriptor.from_tensor(b, [block_n, block_k])
    c_tiles = TensorDescriptor.from_tensor(c, [block_m, block_n])
    grid = (triton.cdiv(M, block_m), triton.cdiv(N, block_n))
    matmul_tma_kernel[grid](
        a_tiles, b_tiles, c_tiles, K, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=8, num_stages=3
    )
    return c


def reference(a, b):
    return a @ b.T


case = Case(
    name="matmul_tma",
    run=matmul_tma,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.m, p.k), "fp16"), make.normal((p.n, p.k), "fp16")],
    # Rows of a descriptor are multiples of 16 bytes; the interpreters of 3.4 and 3.5 want 16 elements.
    interpret=[{"m": 1, "n": 16, "k": 16}, {"m": 129, "n": 144, "k": 208}],
    correctness=[
        {"m": m, "n": n, "k": k} for m, n, k in [(1, 8, 8), (129, 136, 200), (1009, 1032, 1016), (4097, 4096, 4096)]
    ],
    timing=[{"m": 4096, "n": 4096, "k": 4096}],
    triton=">=3.4",  # stable tensor descriptors appear
    bytes_moved=lambda p: 2 * (p.m * p.k + p.k * p.n + p.m * p.n),
    flops=lambda p: 2 * p.m * p.n * p.k,
    competitor=reference,
    tags=["builtin", "compute-bound"],
)
