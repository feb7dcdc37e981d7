"""A matrix product whose loop is divided among warps with different work (``tl.range(warp_specialize=True)``).

Its tensor descriptors are made on the host. Both from 3.4, the division on sm_100.
"""

import torch
import triton
import triton.language as tl

from matrix import Case

try:
    from triton.tools.tensor_descriptor import TensorDescriptor
except ImportError:  # before 3.4; the case is for releases that have it
    TensorDescriptor = None


@triton.jit
def matmul_kernel(a, b, c, K, M_TILE: tl.constexpr, N_TILE: tl.constexpr, K_TILE: tl.constexpr, DIVIDED: tl.constexpr):
    row, col = tl.program_id(0) * M_TILE, tl.program_id(1) * N_TILE
    total = tl.zeros((M_TILE, N_TILE), tl.float32)
    for step in tl.range(0, tl.cdiv(K, K_TILE), warp_specialize=DIVIDED):
        total = tl.dot(a.load([row, step * K_TILE]), b.load([col, step * K_TILE]).T, total)
    c.store([row, col], total.to(tl.float16))


def matmul(a, b, *, divided, tile=128, tile_k=64):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    matmul_kernel[(triton.cdiv(m, tile), triton.cdiv(n, tile))](
        TensorDescriptor.from_tensor(a, [tile, tile_k]),
        TensorDescriptor.from_tensor(b, [tile, tile_k]),
        TensorDescriptor.from_tensor(c, [tile, tile]),
        k, M_TILE=tile, N_TILE=tile, K_TILE=tile_k, DIVIDED=divided, num_warps=4, num_stages=2,
    )  # fmt: skip
    return c


COMMON = {
    "run": matmul,
    "reference": lambda a, b: a @ b.T,
    "inputs": lambda make, p: [make.normal((p.m, p.k), "fp16"), make.normal((p.n, p.k), "fp16")],
    "correctness": [{"m": 256, "n": 384, "k": 192}, {"m": 130, "n": 136, "k": 72}],
    "timing": [{"m": 4096, "n": 4096, "k": 4096}],
    "flops": lambda p: 2 * p.m * p.n * p.k,
    "without": {
        "strided": "takes contiguous inputs",
        "misaligned": "a descriptor's memory begins at a multiple of 16 bytes",
    },
    "triton": ">=3.4",
    "tags": ["builtin", "front-end"],
}
host_descriptor = Case(name="host_descriptor", axes={"divided": [False]}, **COMMON)
warp_specialized = Case(name="warp_specialized", axes={"divided": [True]}, targets=["sm_100"], **COMMON)
