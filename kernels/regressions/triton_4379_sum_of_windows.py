"""triton#4379: a sum of a 4-D tensor over two axes, one after the other, is wrong in 3.0.0.

Windows of 3x3 pixels lie around each pixel of a tile: pointers of four axes, loaded under a mask of four axes, then
added up over axis 2, and over axis 2 again. Wrong when compiled, right under the interpreter.
https://github.com/triton-lang/triton/issues/4379
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "correctness"  # the report names values, and the interpreter is right
GOOD, BAD = "3.9.0", "3.0.0"
TARGET = "sm_90"
PARAMS = {"height": 60, "width": 90}
FIGURE = {"outcome": ("passed", "wrong")}


@triton.jit
def window_sums_kernel(
    x_ptr, out_ptr, height, width, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr, K: tl.constexpr, POWER: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)
    col = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    shift = tl.arange(0, POWER)
    rows = (row[:, None, None, None] + shift[None, None, :, None]) - K // 2
    cols = (col[None, :, None, None] + shift[None, None, None, :]) - K // 2
    inside = (rows >= 0) & (rows < height) & (cols >= 0) & (cols < width)
    inside = inside & (shift[None, None, :, None] < K) & (shift[None, None, None, :] < K)
    window = tl.load(x_ptr + rows * width + cols, mask=inside, other=0.0)
    total = tl.sum(tl.sum(window, 2), 2)
    tl.store(
        out_ptr + row[:, None] * width + col[None, :], total, mask=(row[:, None] < height) & (col[None, :] < width)
    )


def window_sums(x):
    height, width = x.shape
    out = torch.empty_like(x)
    grid = (triton.cdiv(height, 16), triton.cdiv(width, 16))
    window_sums_kernel[grid](x, out, height, width, BLOCK_H=16, BLOCK_W=16, K=3, POWER=4)
    return out


def sums_by_convolution(x):
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    return padded.unfold(0, 3, 1).unfold(1, 3, 1).sum((-1, -2))


case = Case(
    name="regression_triton_4379",
    without={"strided": "takes contiguous inputs"},
    run=window_sums,
    reference=sums_by_convolution,
    inputs=lambda make, p: [make.normal((p.height, p.width), "fp32")],
    interpret=[{"height": 20, "width": 17}],
    correctness=[{"height": 60, "width": 90}],
    targets=["sm_90"],
    tags=["regression"],
)
