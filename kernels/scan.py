"""Scans: a cumulative sum along rows, and a linear recurrence as an associative scan."""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect, Tolerance

BYTES = {"fp32": 4, "int32": 4}


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    before = tl.full((), 0, x_ptr.dtype.element_ty)
    for start in range(0, cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=0)
        tl.store(out_ptr + row * cols + col, before + tl.cumsum(x, 0), mask=col < cols)
        before += tl.sum(x, 0)


@triton.jit
def compose(a_left, b_left, a_right, b_right):
    return a_left * a_right, a_right * b_left + b_right


@triton.jit
def recurrence_kernel(a_ptr, b_ptr, h_ptr, steps, channels, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    step = tl.arange(0, BLOCK_T)[:, None]
    carry = tl.zeros((1, BLOCK_C), tl.float32)
    for start in range(0, steps, BLOCK_T):
        offsets = (start + step) * channels + channel
        mask = (start + step < steps) & (channel < channels)
        a = tl.load(a_ptr + offsets, mask=mask, other=0.0)
        b = tl.load(b_ptr + offsets, mask=mask, other=0.0)
        product, h = tl.associative_scan((a, b), 0, compose)
        h += product * carry
        tl.store(h_ptr + offsets, h, mask=mask)
        carry = tl.sum(tl.where(step == BLOCK_T - 1, h, 0.0), 0)[None, :]


def cumsum(x, *, block=1024):
    rows, cols = x.shape
    out = torch.empty_like(x)
    cumsum_kernel[(rows,)](x, out, cols, BLOCK=block)
    return out


def cumsum_reference(x):
    return torch.cumsum(x, -1, dtype=x.dtype)


def recurrence(a, b, *, block_t=64, block_c=32):
    steps, channels = a.shape
    h = torch.empty_like(a)
    recurrence_kernel[(triton.cdiv(channels, block_c),)](a, b, h, steps, channels, BLOCK_T=block_t, BLOCK_C=block_c)
    return h


def recurrence_reference(a, b):
    h, out = torch.zeros_like(a[0]), []
    for gate, value in zip(a, b):
        h = gate * h + value
        out.append(h)
    return torch.stack(out)


def cumsum_inputs(make, p):
    shape = (p.rows, p.cols)
    return [make.integers(shape, -99, 100, "int32") if p.dtype == "int32" else make.normal(shape, p.dtype)]


cumulative_sum = Case(
    name="cumsum",
    without={"strided": "takes contiguous inputs"},
    run=cumsum,
    reference=cumsum_reference,
    inputs=cumsum_inputs,
    axes={"dtype": ["fp32", "int32"]},
    interpret=[
        {"rows": 1, "cols": 1, "dtype": "fp32"},
        {"rows": 3, "cols": 1025, "dtype": "fp32"},
        {"rows": 7, "cols": 257, "block": 64, "dtype": "int32"},
    ],
    correctness=[{"rows": r, "cols": c} for r, c in [(1, 1), (3, 1025), (127, 1009), (4097, 4096)]],
    timing=[{"rows": 4096, "cols": 8192, "dtype": "fp32"}],
    # In fp32 a running sum of normal values of length n errs by about eps * n; plain torch adds in double.
    tolerance=Tolerance(atol=2e-3, rtol=1e-5),
    bytes_moved=lambda p: 2 * p.rows * p.cols * BYTES[p.dtype],
    competitor=cumsum_reference,
    tags=["builtin", "memory-bound"],
    expectations=[
        Expect(
            reason="NumPy widens the interpreter's int32 sum to int64, and its store writes 8 bytes an element",
            link="https://github.com/triton-lang/triton/blob/v3.2.0/python/triton/runtime/interpreter.py#L849",
            stage="interpret",
            outcome="out_of_bounds",
            triton="<3.3",
            params={"dtype": "int32"},
        )
    ],
)

linear_recurrence = Case(
    name="linear_recurrence",
    without={
        "large_values": "the recurrence overflows",
        "special_values": "gates are multiplied first: 0 times an infinity where step by step it would have decayed",
        "strided": "takes contiguous inputs",
    },
    run=recurrence,
    reference=recurrence_reference,
    inputs=lambda make, p: [
        make.uniform((p.steps, p.channels), "fp32", low=0.5),
        make.normal((p.steps, p.channels), "fp32"),
    ],
    interpret=[
        {"steps": 1, "channels": 1, "block_t": 8, "block_c": 8},
        {"steps": 67, "channels": 17, "block_t": 16, "block_c": 8},
    ],
    correctness=[{"steps": s, "channels": c} for s, c in [(1, 1), (67, 17), (127, 129), (1009, 1021), (4097, 256)]],
    timing=[{"steps": 4096, "channels": 8192}],
    bytes_moved=lambda p: 3 * p.steps * p.channels * 4,
    tags=["builtin", "memory-bound"],
)
