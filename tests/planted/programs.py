"""Kernels whose programs work together: matmuls, transposes, sums over programs, controls and planted bugs."""

import torch
import triton
import triton.language as tl

from matrix import Case, Tolerance

TILE = 16
SQUARES = [{"m": 32, "n": 32, "k": 32}, {"m": 17, "n": 33, "k": 40}, {"m": 1, "n": 5, "k": 7}]


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, TAIL: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    if COLUMNS:  # noqa: SIM108 - a compile-time branch
        col = tl.program_id(1) * TILE + tl.arange(0, TILE)
    else:
        col = tl.program_id(0) * 0 + tl.arange(0, TILE)  # the second program id is never read
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, k if TAIL else k // TILE * TILE, TILE):
        at = start + tl.arange(0, TILE)
        a = tl.load(
            a_ptr + row[:, None] * am + at[None, :] * ak, mask=(row[:, None] < m) & (at[None, :] < k), other=0.0
        )
        b = tl.load(
            b_ptr + at[:, None] * bk + col[None, :] * bn, mask=(at[:, None] < k) & (col[None, :] < n), other=0.0
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * n + col[None, :], total, mask=(row[:, None] < m) & (col[None, :] < n))


def _matmul(a, b, *, tail, columns):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, TILE), triton.cdiv(n, TILE))
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    matmul_kernel[grid](a, b, c, m, n, k, *strides, TAIL=tail, COLUMNS=columns, TILE=TILE)
    return c


def matmul(a, b):
    return _matmul(a, b, tail=True, columns=True)


def matmul_drops_tail(a, b):
    return _matmul(a, b, tail=False, columns=True)


def matmul_one_column(a, b):
    return _matmul(a, b, tail=True, columns=False)


def pair(make, p):
    return [make.normal((p.m, p.k), p.dtype), make.normal((p.k, p.n), p.dtype)]


def product(name, run, tag, points=None, dtypes=("fp32", "fp16"), **fields):
    own = [{**point, "dtype": dtype} for point in (points or SQUARES)[:2] for dtype in dtypes]
    own += [{**point, "dtype": dtypes[0]} for point in (points or SQUARES)[2:]]
    reference = lambda a, b: a @ b  # noqa: E731
    return Case(name=name, run=run, reference=reference, inputs=pair, interpret=own, exact=True, tags=[tag], **fields)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, rows, cols, row_step, col_step, out_step, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    col = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mask = (row[:, None] < rows) & (col[None, :] < cols)
    x = tl.load(x_ptr + row[:, None] * row_step + col[None, :] * col_step, mask=mask)
    tl.store(out_ptr + col[None, :] * out_step + row[:, None], x, mask=mask)


def _transpose(x, out_step):
    rows, cols = x.shape
    out = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(rows, TILE), triton.cdiv(cols, TILE))
    transpose_kernel[grid](x, out, rows, cols, x.stride(0), x.stride(1), out_step, TILE=TILE)
    return out


def transpose(x):
    return _transpose(x, x.shape[0])


def transpose_wrong_stride(x):
    return _transpose(x, min(x.shape))  # right for squares, and for what is higher than wide


def matrices(make, p):
    return [make.normal((p.rows, p.cols), p.dtype)]


def over_matrices(name, run, reference, tag, **fields):
    points = [{"rows": 32, "cols": 32}, {"rows": 33, "cols": 18}, {"rows": 1, "cols": 50}]
    own = [{**point, "dtype": dtype} for point in points for dtype in ("fp32", "fp16")][:5]
    return Case(name=name, run=run, reference=reference, inputs=matrices, interpret=own, tags=[tag], **fields)


@triton.jit
def total_kernel(x_ptr, out_ptr, n, x_step, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.sum(tl.load(x_ptr + at * x_step, mask=at < n, other=0.0), 0)
    if ATOMIC:
        tl.atomic_add(out_ptr, x)
    else:
        tl.store(out_ptr, tl.load(out_ptr) + x)  # programs overwrite each other's sums


def _total(x, *, atomic):
    out = torch.zeros((1,), dtype=x.dtype, device=x.device)
    total_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), ATOMIC=atomic, BLOCK=64)
    return out


def total(x):
    return _total(x, atomic=True)


def total_with_race(x):
    return _total(x, atomic=False)


@triton.jit
def chain_kernel(x_ptr, out_ptr, n, x_step, CHAINED: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n, other=0.0)
    if CHAINED:
        # takes for granted that the block before is done
        before = tl.load(out_ptr + block * BLOCK - 1, mask=block > 0, other=0.0)
    else:
        before = 0.0
        for earlier in range(block):
            past = earlier * BLOCK + tl.arange(0, BLOCK)
            before += tl.sum(tl.load(x_ptr + past * x_step, mask=past < n, other=0.0), 0)
    tl.store(out_ptr + at, before + tl.cumsum(x, 0), mask=at < n)


def _prefix(x, *, chained):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    chain_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), CHAINED=chained, BLOCK=64)
    return out


def prefix(x):
    return _prefix(x, chained=False)


def prefix_chained(x):
    return _prefix(x, chained=True)


def vector(make, p):
    return [make.uniform((p.n,), "fp32", low=0.5, high=1.5)]


def over_vectors(name, run, reference, tag, first=64, **fields):
    # One program alone runs right; on a GPU a race needs company.
    points = [{"n": first}, {"n": 500}]
    own = {"interpret": points, "correctness": [*points, {"n": 1 << 17}]}
    return Case(name=name, run=run, reference=reference, inputs=vector, tags=[tag], **own, **fields)


@triton.jit
def batched_kernel(x_ptr, out_ptr, n, batch_step, step, out_step, BLOCK: tl.constexpr):
    batch = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + batch * batch_step + at * step, mask=at < n)
    tl.store(out_ptr + batch * out_step + at, x * 2, mask=at < n)


def _batched(x, batch_step, out_step):
    batches, n = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    batched_kernel[(triton.cdiv(n, 64), batches)](x, out, n, batch_step, x.stride(1), out_step, BLOCK=64)
    return out


def batched(x):
    return _batched(x, x.stride(0), x.shape[1])


def batched_padded(x):
    return _batched(x, triton.cdiv(x.shape[1], 64) * 64, x.shape[1])  # batches lie one after the other, unpadded


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, x_step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_step, mask=at < n, other=0)
    tl.atomic_add(out_ptr + x, 1, mask=at < n)


def histogram(x):
    out = torch.zeros((16,), dtype=torch.int32, device=x.device)
    histogram_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), BLOCK=64)
    return out


def histogram_reference(x):
    return torch.bincount(x, minlength=16).to(torch.int32)


controls = [
    product("matmul", matmul, "control"),
    over_matrices("transpose", transpose, lambda x: x.t().clone(), "control"),
    over_matrices("batched", batched, lambda x: x * 2, "control"),
    # Up to 131,072 terms, added block after block in fp32: no plain path adds in that order.
    over_vectors(
        "total",
        total,
        lambda x: x.sum(0, keepdim=True),
        "control",
        deterministic=False,
        tolerance=Tolerance(atol=1e-5, rtol=2e-6),
    ),
    over_vectors("prefix", prefix, lambda x: x.cumsum(0), "control"),
    Case(
        name="histogram",
        run=histogram,
        reference=histogram_reference,
        inputs=lambda make, p: [make.integers((p.n,), 0, 16)],
        interpret=[{"n": 64}, {"n": 1001}],
        tags=["control"],
    ),
]

bugs = [
    product("matmul_drops_tail", matmul_drops_tail, "bug"),
    product(
        "second_program_id_unused",
        matmul_one_column,
        "bug",
        [{"m": 32, "n": 16, "k": 32}, {"m": 17, "n": 33, "k": 40}],
    ),
    over_matrices("wrong_stride", transpose_wrong_stride, lambda x: x.t().clone(), "bug"),
    over_vectors("race_on_a_sum", total_with_race, lambda x: x.sum(0, keepdim=True), "bug", deterministic=False),
    over_vectors("race_between_blocks", prefix_chained, lambda x: x.cumsum(0), "bug"),
    Case(
        name="wrong_batch_step",
        run=batched_padded,
        reference=lambda x: x * 2,
        inputs=matrices,
        interpret=[{"rows": 4, "cols": 64, "dtype": "fp32"}, {"rows": 3, "cols": 65, "dtype": "fp32"}],
        tags=["bug"],
    ),
]
