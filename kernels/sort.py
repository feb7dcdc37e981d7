"""Sorting inside a block: whole rows, and the top-k choice of a mixture-of-experts router."""

import torch
import triton
import triton.language as tl

from matrix import Case, Expect

BYTES = {"fp32": 4, "fp16": 2}


SORT_INFINITY = {
    "reason": "before 3.4, tl.sort multiplies values by zero to choose one of two, and infinity becomes NaN",
    "link": "https://github.com/triton-lang/triton/issues/5999",
    "outcome": "wrong",
    "triton": "<3.4",
}


@triton.jit
def sort_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * cols + col, mask=mask, other=float("inf"))
    tl.store(out_ptr + row * cols + col, tl.sort(x), mask=mask)


@triton.jit
def top_k_kernel(x_ptr, value_ptr, index_ptr, cols, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    # One integer holds value and index: it sorts by value first, and of equals the lower index wins.
    bits = x.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = tl.topk((order.to(tl.int64) << 32) | (0x7FFFFFFF - col).to(tl.int64), K)
    order = (keys >> 32).to(tl.int32)
    bits = tl.where(order < 0, order ^ 0x7FFFFFFF, order)
    k = tl.arange(0, K)
    tl.store(value_ptr + row * K + k, bits.to(tl.float32, bitcast=True))
    tl.store(index_ptr + row * K + k, 0x7FFFFFFF - (keys & 0x7FFFFFFF).to(tl.int32))


def sort(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    sort_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def sort_reference(x):
    return torch.sort(x, -1).values


def top_k(x, *, k):
    rows, cols = x.shape
    values = torch.empty((rows, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((rows, k), dtype=torch.int32, device=x.device)
    top_k_kernel[(rows,)](x, values, indices, cols, K=k, BLOCK=triton.next_power_of_2(cols), num_warps=1)
    return values, indices


def top_k_reference(x, *, k):
    values, indices = torch.sort(x, stable=True, dim=-1, descending=True)
    return values[:, :k], indices[:, :k].to(torch.int32)


sort_rows = Case(
    name="sort_rows",
    without={"special_values": "a row with a NaN in it has no order", "strided": "takes contiguous inputs"},
    run=sort,
    reference=sort_reference,
    inputs=lambda make, p: [make.normal((p.rows, p.cols), p.dtype)],
    axes={"dtype": ["fp32", "fp16"]},
    interpret=[{"rows": 3, "cols": 2, "dtype": "fp16"}, {"rows": 2, "cols": 29, "dtype": "fp32"}],
    correctness=[{"rows": r, "cols": c} for r, c in [(1, 2), (3, 61), (127, 129), (1009, 256), (4097, 512)]],
    timing=[{"rows": 65536, "cols": 32, "dtype": "fp32"}],
    bytes_moved=lambda p: 2 * p.rows * p.cols * BYTES[p.dtype],
    competitor=sort_reference,
    tags=["builtin", "latency"],
    # Rows whose length is no power of two are padded with infinity.
    expectations=[
        Expect(stage="interpret", params={"cols": 29}, **SORT_INFINITY),
        *(Expect(stage="correctness", params={"cols": cols}, **SORT_INFINITY) for cols in (61, 129)),
    ],
)

router_top_k = Case(
    name="top_k",
    without={"strided": "takes contiguous inputs"},
    run=top_k,
    reference=top_k_reference,
    inputs=lambda make, p: [make.normal((p.rows, p.cols), p.dtype)],
    axes={"dtype": ["fp32", "fp16"]},
    interpret=[{"rows": 2, "cols": 29, "k": 4, "dtype": "fp32"}, {"rows": 2, "cols": 8, "k": 8, "dtype": "fp16"}],
    correctness=[
        {"rows": r, "cols": c, "k": k} for r, c, k in [(1, 8, 8), (127, 60, 4), (4097, 128, 8), (1009, 256, 16)]
    ],
    timing=[{"rows": 65536, "cols": 16, "k": 4, "dtype": "fp32"}],
    triton=">=3.4",  # tl.topk appears
    bytes_moved=lambda p: p.rows * p.cols * BYTES[p.dtype],
    competitor=lambda x, *, k: torch.topk(x, k),
    tags=["builtin", "latency"],
)
