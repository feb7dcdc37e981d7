"""triton#7449: layer norm backward over 4096 to 8192 columns spills, and runs 4.5 times longer.

Liger-Kernel's shape of it: a program takes a run of rows, one block holds a whole row, and the gradients of weight
and bias are summed in registers, so that a small change in LLVM tips it over. Candidates of 3.4.0 had that change;
3.4.0 was released without it. So a sentinel with no bad release: the built-in layer_norm is timed at 4096 columns,
this one beyond. Liger#801 and tritonbench#264 are the same.
https://github.com/triton-lang/triton/pull/7449
"""

import torch
import triton
import triton.language as tl

from matrix import Case

STAGE = "compile"  # the spills; what they cost is for the timing stage to tell
GOOD, BAD = "3.4.0", ""
TARGET = "sm_90"
PARAMS = {"rows": 4096, "cols": 8192, "dtype": "bf16"}
FIGURE = {"stack_bytes": (0, 0)}


@triton.jit
def backward_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, rows, cols, rows_each, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    first = program * rows_each
    col = tl.arange(0, BLOCK)
    mask = col < cols
    w = tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(first, tl.minimum(first + rows_each, rows)):
        x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        x_hat = (x - tl.load(mean_ptr + row)) * rstd
        w_dy = w * dy
        along = tl.sum(x_hat * w_dy, 0) / cols
        shift = tl.sum(w_dy, 0) / cols
        tl.store(dx_ptr + row * cols + col, (w_dy - (x_hat * along + shift)) * rstd, mask=mask)
        dw += dy * x_hat
        db += dy
    tl.store(dw_ptr + program * cols + col, dw, mask=mask)
    tl.store(db_ptr + program * cols + col, db, mask=mask)


def layer_norm_backward(dy, x, mean, rstd, weight, *, programs=132):
    rows, cols = x.shape
    dx = torch.empty_like(x)
    dw = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    db = torch.empty_like(dw)
    each, block = triton.cdiv(rows, programs), triton.next_power_of_2(cols)
    grid = (programs,)
    backward_kernel[grid](dy, x, mean, rstd, weight, dx, dw, db, rows, cols, each, BLOCK=block, num_warps=16)
    return dx, dw.sum(0), db.sum(0)


def with_given_statistics(dy, x, mean, rstd, weight):
    x_hat = (x - mean[:, None]) * rstd[:, None]
    w_dy = weight * dy
    along, shift = (x_hat * w_dy).mean(-1, keepdim=True), w_dy.mean(-1, keepdim=True)
    return (w_dy - x_hat * along - shift) * rstd[:, None], (dy * x_hat).sum(0), dy.sum(0)


case = Case(
    name="regression_triton_7449",
    without={"strided": "takes contiguous inputs"},
    run=layer_norm_backward,
    reference=with_given_statistics,
    inputs=lambda make, p: [
        make.normal((p.rows, p.cols), p.dtype),
        make.normal((p.rows, p.cols), p.dtype),
        make.normal((p.rows,), "fp32", std=0.1),
        make.uniform((p.rows,), "fp32", low=0.5, high=1.5),
        make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
    ],
    interpret=[{"rows": 7, "cols": 4099, "programs": 3, "dtype": "fp32"}],
    correctness=[
        {"rows": 1009, "cols": cols, "dtype": dtype} for cols in (4097, 6144, 8192) for dtype in ("bf16", "fp32")
    ],
    timing=[{"rows": 4096, "cols": cols, "dtype": "bf16"} for cols in (4096, 6144, 8192)],
    bytes_moved=lambda p: 3 * p.rows * p.cols * {"fp32": 4, "bf16": 2}[p.dtype],
    targets=["sm_90"],
    tags=["regression", "sentinel"],
)
