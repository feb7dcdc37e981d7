"""Row softmax: one pass over rows that fit a block, by default one row a program."""

import torch
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    offsets = row * cols + col
    mask = (row < rows) & (col < cols)
    # Rows past the end would be all -inf, and -inf - -inf is NaN: they read zeros instead.
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.where((col < cols) | (row >= rows), x, float("-inf"))
    x = tl.exp(x - tl.max(x, 1)[:, None])
    tl.store(out_ptr + offsets, x / tl.sum(x, 1)[:, None], mask=mask)


def softmax(x, *, rows_per_program=1):
    rows, cols = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    grid = (triton.cdiv(rows, rows_per_program),)
    softmax_kernel[grid](x, out, rows, cols, ROWS=rows_per_program, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return out


def reference(x):
    return torch.softmax(x, -1)


case = Case(
    name="softmax",
    without={"strided": "takes contiguous inputs"},
    run=softmax,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.rows, p.cols), p.dtype, std=3)],
    axes={"dtype": ["fp16", "bf16", "fp32"]},
    compile=[{"rows": 8192, "cols": 4096, "dtype": "fp16"}],
    interpret=[
        {"rows": 1, "cols": 1, "dtype": "fp32"},
        {"rows": 1, "cols": 4097, "dtype": "bf16"},
        {"rows": 13, "cols": 1009, "dtype": "fp16"},
        {"rows": 127, "cols": 129, "rows_per_program": 8, "dtype": "fp32"},
        {"rows": 4097, "cols": 3, "rows_per_program": 512, "dtype": "fp16"},
    ],
    correctness=[
        {"rows": rows, "cols": cols}
        for rows, cols in [(1, 1), (1, 4097), (127, 129), (1009, 1021), (4097, 4096), (4096, 4097), (8192, 16384)]
    ],
    timing=[{"rows": 8192, "cols": 4096, "dtype": "fp16"}, {"rows": 8192, "cols": 1000, "dtype": "fp32"}],
    bytes_moved=lambda p: 2 * p.rows * p.cols * BYTES[p.dtype],
    competitor=reference,
    tags=["builtin", "memory-bound"],
)
