"""sglang#24281: small mixture-of-experts products run with one warp from triton_kernels 3.6 on.

The library's rule for the number of warps had a floor of four up to 3.5.1 and has one of one: a tile of 16x64 that
unpacks 4-bit weights then has one warp. The rule is no compiler's; what it costs on a GPU is what is seen here, one
release with four warps and with one. Decoding lost over 30 % where the rule is thought to be the cause (vllm#39236).
Compiled, one warp takes three times the registers and fewer shared-memory wavefronts, and nothing puts it behind.
https://github.com/sgl-project/sglang/pull/24281
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "timing"
GOOD, BAD = "3.6.0", "3.6.0"
TARGET = "sm_90"
PARAMS = {"experts": 32, "n": 2880, "k": 2880, "block_n": 64, "warps": 4}
BAD_PARAMS = {"experts": 32, "n": 2880, "k": 2880, "block_n": 64, "warps": 1}
FIGURE = {"ratio": (1.0, 1.3)}


@triton.jit
def experts_kernel(
    x_ptr, w_ptr, scale_ptr, out_ptr, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(1).to(tl.int64)
    col = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row, pair = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k // 2, BLOCK_K):
        at = start + pair
        packed = tl.load(w_ptr + (expert * n + col[None, :]) * (k // 2) + at[:, None])
        scale = tl.load(scale_ptr + (expert * n + col[None, :]) * (k // GROUP) + at[:, None] // (GROUP // 2))
        x = x_ptr + (expert * BLOCK_M + row[:, None]) * k + 2 * at[None, :]
        low = ((packed & 15).to(tl.int8) - 8).to(tl.bfloat16) * scale
        high = ((packed >> 4).to(tl.int8) - 8).to(tl.bfloat16) * scale
        acc = tl.dot(tl.load(x), low.to(tl.bfloat16), acc)
        acc = tl.dot(tl.load(x + 1), high.to(tl.bfloat16), acc)
    tl.store(out_ptr + (expert * BLOCK_M + row[:, None]) * n + col[None, :], acc.to(out_ptr.dtype.element_ty))


def experts_product(x, w, scale, *, block_n, warps):
    (experts, rows, k), n = x.shape, w.shape[1]
    out = torch.empty((experts, rows, n), dtype=x.dtype, device=x.device)
    experts_kernel[(n // block_n, experts)](
        x, w, scale, out, n, k, BLOCK_M=rows, BLOCK_N=block_n, BLOCK_K=32, GROUP=32, num_warps=warps, num_stages=3
    )
    return out


def reference(x, w, scale):
    pairs = torch.stack([(w.int() & 15) - 8, (w.int() >> 4) - 8], -1)
    weights = pairs.reshape(*w.shape[:2], -1).to(x.dtype) * scale.to(x.dtype).repeat_interleave(32, -1)
    return x @ weights.transpose(1, 2)


def inputs(make, p):
    return [
        make.normal((p.experts, 16, p.k), "bf16"),
        make.integers((p.experts, p.n, p.k // 2), 0, 256, "uint8"),
        make.integers((p.experts, p.n, p.k // 32), 1, 3, "bf16"),
    ]


case = Case(
    name="regression_sglang_24281",
    without={"strided": "takes contiguous inputs"},
    run=experts_product,
    reference=reference,
    inputs=inputs,
    axes={"warps": [4, 1]},
    correctness=[{"experts": 2, "n": 128, "k": 192, "block_n": 64}],
    timing=[{"experts": 32, "n": 2880, "k": 2880, "block_n": block_n} for block_n in (64, 32)],
    bytes_moved=lambda p: p.experts * (p.n * p.k / 2 + p.n * p.k / 16 + 2 * 16 * (p.k + p.n)),
    targets=["sm_90"],
    tags=["regression"],
)
