"""RMS norm, forward and backward, as the Llama family uses it: no mean, no bias.

The backward pass recomputes the row's scale from ``x``. Each program sums the weight gradient of its rows;
a second kernel adds up the programs' shares.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
EPS = 1e-6


@triton.jit
def rms_norm_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / cols + eps)
    w = tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + col, x * rstd * w, mask=mask)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def rms_norm_backward_kernel(dy_ptr, x_ptr, w_ptr, dx_ptr, share_ptr, rows, cols, eps, BLOCK: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    w = tl.load(w_ptr + col, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    for row in range(program, rows, programs):
        offsets = row * cols + col
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / cols + eps)
        x_hat = x * rstd
        w_dy = w * dy
        along = tl.sum(x_hat * w_dy, 0) / cols
        tl.store(dx_ptr + offsets, (w_dy - x_hat * along) * rstd, mask=mask)
        dw += dy * x_hat
    tl.store(share_ptr + program * cols + col, dw, mask=mask)


@triton.jit
def add_shares_kernel(share_ptr, out_ptr, programs, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, programs, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        mask = (row < programs) & (col[None, :] < cols)
        total += tl.load(share_ptr + row * cols + col[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + col, tl.sum(total, 0), mask=col < cols)


def rms_norm(x, weight):
    rows, cols = x.shape
    y = torch.empty_like(x)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    rms_norm_kernel[(rows,)](x, weight, y, rstd, cols, EPS, BLOCK=block, num_warps=8)
    return y, rstd


def rms_norm_backward(dy, x, weight, *, programs=256):
    rows, cols = x.shape
    programs = min(programs, rows)
    dx, dw = torch.empty_like(x), torch.empty_like(weight)
    shares = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    rms_norm_backward_kernel[(programs,)](dy, x, weight, dx, shares, rows, cols, EPS, BLOCK=block, num_warps=8)
    add_shares_kernel[(triton.cdiv(cols, 64),)](shares, dw, programs, cols, ROWS=32, COLS=64)
    return dx, dw


def plain(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def reference(x, weight):
    return plain(x, weight), torch.rsqrt(x.square().mean(-1) + EPS)


def backward_reference(dy, x, weight):
    leaves = [t.detach().requires_grad_() for t in (x, weight)]
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return torch.autograd.grad((plain(*leaves) * dy).sum(), leaves)


SHAPES = [{"rows": r, "cols": c} for r, c in [(1, 1), (1, 4097), (127, 129), (1009, 1021), (4097, 4096), (4096, 4097)]]

forward = Case(
    name="rms_norm",
    without={"strided": "takes contiguous inputs"},
    run=rms_norm,
    reference=reference,
    inputs=lambda make, p: [
        make.normal((p.rows, p.cols), p.dtype),
        make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
    ],
    axes={"dtype": ["bf16", "fp16", "fp32"]},
    interpret=[
        {"rows": 1, "cols": 1, "dtype": "fp32"},
        {"rows": 3, "cols": 4097, "dtype": "bf16"},
        {"rows": 31, "cols": 129, "dtype": "fp16"},
    ],
    correctness=SHAPES,
    timing=[{"rows": 8192, "cols": 4096, "dtype": "bf16"}],
    bytes_moved=lambda p: (2 * p.rows * p.cols + p.cols) * BYTES[p.dtype] + 4 * p.rows,
    competitor=lambda x, weight: F.rms_norm(x, (x.shape[-1],), weight, EPS),
    tags=["builtin", "memory-bound"],
)

backward = Case(
    name="rms_norm_backward",
    without={"strided": "takes contiguous inputs"},
    run=rms_norm_backward,
    reference=backward_reference,
    inputs=lambda make, p: [
        make.normal((p.rows, p.cols), p.dtype),
        make.normal((p.rows, p.cols), p.dtype),
        make.uniform((p.cols,), p.dtype, low=0.5, high=1.5),
    ],
    axes={"dtype": ["bf16", "fp16", "fp32"]},
    interpret=[
        {"rows": 1, "cols": 3, "dtype": "fp32"},
        {"rows": 19, "cols": 257, "programs": 4, "dtype": "fp32"},
        {"rows": 7, "cols": 1021, "programs": 3, "dtype": "fp16"},
    ],
    # A row of one column has no direction: its gradient is a difference of equals in every precision.
    correctness=[point for point in SHAPES if point["cols"] > 1],
    timing=[{"rows": 8192, "cols": 4096, "dtype": "bf16"}],
    bytes_moved=lambda p: 3 * p.rows * p.cols * BYTES[p.dtype],
    tags=["builtin", "memory-bound"],
)
