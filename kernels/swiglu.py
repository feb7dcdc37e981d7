"""SwiGLU, the gated activation of Llama-like feed-forward layers, forward and backward."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, gate * tl.sigmoid(gate) * up, mask=mask)


@triton.jit
def swiglu_backward_kernel(dy_ptr, gate_ptr, up_ptr, dgate_ptr, dup_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate)
    silu = gate * share
    tl.store(dup_ptr + offsets, dy * silu, mask=mask)
    tl.store(dgate_ptr + offsets, dy * up * (silu * (1.0 - share) + share), mask=mask)


def swiglu(gate, up, *, block=1024):
    out = torch.empty_like(gate)
    n = gate.numel()
    swiglu_kernel[(triton.cdiv(n, block),)](gate, up, out, n, BLOCK=block)
    return out


def swiglu_backward(dy, gate, up, *, block=1024):
    dgate, dup = torch.empty_like(gate), torch.empty_like(up)
    n = gate.numel()
    swiglu_backward_kernel[(triton.cdiv(n, block),)](dy, gate, up, dgate, dup, n, BLOCK=block)
    return dgate, dup


def reference(gate, up):
    return F.silu(gate) * up


def backward_reference(dy, gate, up):
    leaves = [t.detach().requires_grad_() for t in (gate, up)]
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return torch.autograd.grad((reference(*leaves) * dy).sum(), leaves)


COMMON = {
    "axes": {"dtype": ["bf16", "fp16", "fp32"]},
    "interpret": [
        {"tokens": 1, "dim": 1, "dtype": "fp32"},
        {"tokens": 3, "dim": 1009, "dtype": "fp16"},
        {"tokens": 1, "dim": 1025, "dtype": "bf16"},
    ],
    "correctness": [
        {"tokens": tokens, "dim": dim} for tokens, dim in [(1, 1), (1, 1025), (127, 1009), (4097, 4096), (2048, 11008)]
    ],
    "timing": [{"tokens": 4096, "dim": 11008, "dtype": "bf16"}],
    "tags": ["builtin", "memory-bound"],
}

forward = Case(
    name="swiglu",
    without={"strided": "takes contiguous inputs"},
    run=swiglu,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.tokens, p.dim), p.dtype, std=2) for _ in range(2)],
    bytes_moved=lambda p: 3 * p.tokens * p.dim * BYTES[p.dtype],
    competitor=reference,
    **COMMON,
)

backward = Case(
    name="swiglu_backward",
    without={"strided": "takes contiguous inputs"},
    run=swiglu_backward,
    reference=backward_reference,
    inputs=lambda make, p: [make.normal((p.tokens, p.dim), p.dtype, std=2) for _ in range(3)],
    bytes_moved=lambda p: 5 * p.tokens * p.dim * BYTES[p.dtype],
    **COMMON,
)
