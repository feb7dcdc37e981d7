"""Layer norm, forward and backward.

The backward pass recomputes the statistics from ``x`` instead of reading saved ones. Each program sums the
weight and bias gradients of its rows; a second kernel adds up the programs' shares.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
EPS = 1e-5


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
    w = tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + col, centred * rstd * w + b, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def layer_norm_backward_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, share_ptr, rows, cols, eps, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    w = tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, programs):
        offsets = row * cols + col
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - tl.sum(x, 0) / cols, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / cols + eps)
        x_hat = centred * rstd
        w_dy = w * dy
        along = tl.sum(x_hat * w_dy, 0) / cols
        tl.store(dx_ptr + offsets, (w_dy - x_hat * along - tl.sum(w_dy, 0) / cols) * rstd, mask=mask)
        dw += dy * x_hat
        db += dy
    tl.store(share_ptr + program * cols + col, dw, mask=mask)
    tl.store(share_ptr + (programs + program) * cols + col, db, mask=mask)


@triton.jit
def add_shares_kernel(share_ptr, out_ptr, programs, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    which = tl.program_id(1)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        offsets = (which * programs + row) * cols + col
        total += tl.load(share_ptr + offsets, mask=(row < programs) & (col < cols), other=0.0)
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    tl.store(out_ptr + which * cols + col, tl.sum(total, 0), mask=col < cols)


def layer_norm(x, weight, bias):
    rows, cols = x.shape
    y = torch.empty_like(x)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    layer_norm_kernel[(rows,)](x, weight, bias, y, mean, rstd, cols, EPS, BLOCK=block, num_warps=8)
    return y, mean, rstd


def layer_norm_backward(dy, x, weight, *, programs=256):
    rows, cols = x.shape
    programs = min(programs, rows)
    dx = torch.empty_like(x)
    shares = torch.empty((2, programs, cols), dtype=torch.float32, device=x.device)
    grads = torch.empty((2, cols), dtype=weight.dtype, device=x.device)
    block = triton.next_power_of_2(cols)
    layer_norm_backward_kernel[(programs,)](dy, x, weight, dx, shares, rows, cols, EPS, BLOCK=block, num_warps=8)
    add_shares_kernel[(triton.cdiv(cols, 64), 2)](shares, grads, programs, cols, ROWS=32, COLS=64)
    return dx, grads[0], grads[1]


def reference(x, weight, bias):
    rstd = torch.rsqrt(x.var(-1, unbiased=False) + EPS)
    return competitor(x, weight, bias), x.mean(-1), rstd


def competitor(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def backward_reference(dy, x, weight):
    leaves = [t.detach().requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return torch.autograd.grad((competitor(*leaves) * dy).sum(), leaves)


SHAPES = [{"rows": r, "cols": c} for r, c in [(1, 1), (1, 4097), (127, 129), (1009, 1021), (4097, 4096), (4096, 4097)]]

forward = Case(
    name="layer_norm",
    without={"strided": "takes contiguous inputs"},
    run=layer_norm,
    reference=reference,
    inputs=lambda make, p: [
        make.normal((p.rows, p.cols), p.dtype, mean=0.5),
        make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
        make.normal((p.cols,), p.dtype),
    ],
    axes={"dtype": ["fp16", "bf16", "fp32"]},
    interpret=[
        {"rows": 1, "cols": 1, "dtype": "fp32"},
        {"rows": 3, "cols": 4097, "dtype": "bf16"},
        {"rows": 31, "cols": 129, "dtype": "fp16"},
    ],
    correctness=SHAPES,
    timing=[{"rows": 8192, "cols": 4096, "dtype": "fp16"}],
    bytes_moved=lambda p: (2 * p.rows * p.cols + 2 * p.cols) * BYTES[p.dtype] + 8 * p.rows,
    competitor=competitor,
    tags=["builtin", "memory-bound"],
)

backward = Case(
    name="layer_norm_backward",
    without={"strided": "takes contiguous inputs"},
    run=layer_norm_backward,
    reference=backward_reference,
    inputs=lambda make, p: [
        make.normal((p.rows, p.cols), p.dtype),
        make.normal((p.rows, p.cols), p.dtype, mean=0.5),
        make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
    ],
    axes={"dtype": ["fp16", "bf16", "fp32"]},
    interpret=[
        {"rows": 1, "cols": 3, "dtype": "fp32"},
        {"rows": 19, "cols": 257, "programs": 4, "dtype": "fp32"},
        {"rows": 7, "cols": 1021, "programs": 3, "dtype": "fp16"},
    ],
    # One column has no variance: its gradient is a difference of equals, and every precision differs.
    correctness=[point for point in SHAPES if point["cols"] > 1],
    timing=[{"rows": 8192, "cols": 4096, "dtype": "fp16"}],
    bytes_moved=lambda p: 3 * p.rows * p.cols * BYTES[p.dtype],
    tags=["builtin", "memory-bound"],
)
