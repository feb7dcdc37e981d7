"""triton#9703: a reduction of a tile that a TMA descriptor loaded is several times slower.

From 3.6.0 the load has a vectorised register layout that spreads the reduced axis over the warps, so that the
maximum needs shuffles and an exchange through shared memory, full of bank conflicts: 264 to 1292 wavefronts a block
at 64x128. Good in 3.5.1, bad in 3.6.0 and 3.7.1. The built-in `column_max` has it at more sizes, with its pointer twin.
https://github.com/triton-lang/triton/issues/9703
"""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

STAGE = "compile"
GOOD, BAD = "3.5.1", "3.6.0"
TARGET = "sm_90"
PARAMS = {"n": 8192, "block_m": 64, "block_n": 128}
FIGURE = {"shared_wavefronts": (264.0, 1292.0)}
FLAG = "shared_traffic_multiplied"
ON_GPU = {"STAGE": "timing", "PARAMS": {"n": 8192, "block_m": 16, "block_n": 128}, "FIGURE": {"ratio": (1.0, 3.1)}}


@triton.jit
def column_max_kernel(x_ptr, out_ptr, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK_N
    x = tl.make_tensor_descriptor(x_ptr, shape=[n, n], strides=[n, 1], block_shape=[BLOCK_M, BLOCK_N])
    tile = x.load([row * BLOCK_M, col]).to(tl.float32)
    tl.store(out_ptr + row * n + col + tl.arange(0, BLOCK_N), tl.max(tile, 0))


def column_max(x, *, block_m, block_n):
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=x.device))
    n = x.shape[1]
    out = torch.empty((n // block_m, n), dtype=torch.float32, device=x.device)
    column_max_kernel[(n // block_m, n // block_n)](x, out, n, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4)
    return out


case = Case(
    name="regression_triton_9703",
    run=column_max,
    reference=lambda x, *, block_m: x.view(-1, block_m, x.shape[1]).amax(1),
    inputs=lambda make, p: [make.normal((p.n, p.n), "fp16")],
    compile=[{"n": 8192, "block_m": 64, "block_n": 128}],
    timing=[{"n": 8192, "block_m": 16, "block_n": 128}],
    bytes_moved=lambda p: p.n * p.n * (2 + 4 / p.block_m),
    triton=">=3.4",
    targets=["sm_90", "sm_100"],
    expectations=[
        Expect(
            change=change,
            triton=">=3.6",
            reason="the coalescing pass gives descriptor loads a layout that the reduction pays for",
            link="https://github.com/triton-lang/triton/issues/9703",
        )
        for change in ("shared_traffic_multiplied", "exchange_multiplied")
    ],
    tags=["regression"],
)
