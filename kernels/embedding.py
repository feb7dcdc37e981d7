"""Embedding: a gather of table rows, and its gradient as a scatter with floating-point atomics."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def embedding_kernel(id_ptr, table_ptr, out_ptr, dim, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < dim
    row = tl.load(id_ptr + token)
    tl.store(out_ptr + token * dim + col, tl.load(table_ptr + row * dim + col, mask=mask), mask=mask)


@triton.jit
def embedding_backward_kernel(id_ptr, dy_ptr, grad_ptr, dim, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = col < dim
    row = tl.load(id_ptr + token)
    dy = tl.load(dy_ptr + token * dim + col, mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(grad_ptr + row * dim + col, dy, mask=mask, sem="relaxed")


def embedding(ids, table, *, block=1024):
    tokens, dim = ids.shape[0], table.shape[1]
    out = torch.empty((tokens, dim), dtype=table.dtype, device=table.device)
    embedding_kernel[(tokens, triton.cdiv(dim, block))](ids, table, out, dim, BLOCK=block)
    return out


def embedding_backward(ids, dy, *, vocab, block=1024):
    tokens, dim = dy.shape
    grad = torch.zeros((vocab, dim), dtype=torch.float32, device=dy.device)
    embedding_backward_kernel[(tokens, triton.cdiv(dim, block))](ids, dy, grad, dim, BLOCK=block)
    return grad


def backward_reference(ids, dy, *, vocab):
    table = torch.zeros((vocab, dy.shape[1]), dtype=dy.dtype, device=dy.device).requires_grad_()
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return torch.autograd.grad((F.embedding(ids, table) * dy).sum(), table)


COMMON = {
    "axes": {"dtype": ["fp16", "fp32"]},
    "interpret": [
        {"tokens": 1, "vocab": 1, "dim": 1, "dtype": "fp32"},
        {"tokens": 23, "vocab": 11, "dim": 129, "block": 64, "dtype": "fp16"},
    ],
    "correctness": [
        {"tokens": tokens, "vocab": vocab, "dim": dim}
        for tokens, vocab, dim in [(1, 1, 1), (127, 11, 129), (1009, 4096, 1021), (4097, 4096, 4096)]
    ],
    "tags": ["builtin", "memory-bound"],
}

forward = Case(
    name="embedding",
    without={"strided": "takes contiguous inputs"},
    run=embedding,
    reference=F.embedding,
    inputs=lambda make, p: [make.integers((p.tokens,), 0, p.vocab), make.normal((p.vocab, p.dim), p.dtype)],
    timing=[{"tokens": 16384, "vocab": 32000, "dim": 4096, "dtype": "fp16"}],
    bytes_moved=lambda p: 2 * p.tokens * p.dim * BYTES[p.dtype] + 8 * p.tokens,
    competitor=F.embedding,
    **COMMON,
)

backward = Case(
    name="embedding_backward",
    without={"strided": "takes contiguous inputs"},
    run=embedding_backward,
    reference=backward_reference,
    inputs=lambda make, p: [make.integers((p.tokens,), 0, p.vocab), make.normal((p.tokens, p.dim), p.dtype)],
    timing=[{"tokens": 16384, "vocab": 8192, "dim": 1024, "dtype": "fp16"}],
    bytes_moved=lambda p: p.tokens * p.dim * (BYTES[p.dtype] + 8) + p.vocab * p.dim * 4,
    competitor=backward_reference,
    deterministic=False,  # the order of floating-point atomics
    **COMMON,
)
