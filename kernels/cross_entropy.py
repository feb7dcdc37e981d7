"""Cross entropy over a vocabulary: the loss alone, and the loss with its gradient in one kernel.

Both read a row of logits block by block and keep a running maximum and sum, as fused losses for language
models do. Rows whose target is IGNORE add nothing.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
IGNORE = -100


@triton.jit
def log_sum_exp(row_ptr, vocab, BLOCK: tl.constexpr):
    highest = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, vocab, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + col, mask=col < vocab, other=float("-inf")).to(tl.float32)
        new = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp(highest - new) + tl.sum(tl.exp(x - new), 0)
        highest = new
    return highest + tl.log(total)


@triton.jit
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, lse_ptr, vocab, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * vocab
    target = tl.load(target_ptr + row)
    lse = log_sum_exp(row_ptr, vocab, BLOCK)
    counts = target != ignore
    chosen = tl.load(row_ptr + target, mask=counts, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(counts, lse - chosen, 0.0))
    tl.store(lse_ptr + row, lse)


@triton.jit
def cross_entropy_gradient_kernel(
    logits_ptr, target_ptr, upstream_ptr, loss_ptr, grad_ptr, vocab, ignore, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * vocab
    target = tl.load(target_ptr + row)
    lse = log_sum_exp(row_ptr, vocab, BLOCK)
    counts = target != ignore
    chosen = tl.load(row_ptr + target, mask=counts, other=0.0).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(counts, lse - chosen, 0.0))
    upstream = tl.where(counts, tl.load(upstream_ptr + row).to(tl.float32), 0.0)
    for start in range(0, vocab, BLOCK):
        col = start + tl.arange(0, BLOCK)
        mask = col < vocab
        x = tl.load(row_ptr + col, mask=mask, other=float("-inf")).to(tl.float32)
        grad = (tl.exp(x - lse) - tl.where(col == target, 1.0, 0.0)) * upstream
        tl.store(grad_ptr + row * vocab + col, grad, mask=mask)


def cross_entropy(logits, target, *, block=4096):
    rows, vocab = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    lse = torch.empty_like(loss)
    cross_entropy_kernel[(rows,)](logits, target, loss, lse, vocab, IGNORE, BLOCK=block, num_warps=8)
    return loss, lse


def cross_entropy_gradient(logits, target, upstream, *, block=4096):
    rows, vocab = logits.shape
    loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
    grad = torch.empty_like(logits)
    cross_entropy_gradient_kernel[(rows,)](
        logits, target, upstream, loss, grad, vocab, IGNORE, BLOCK=block, num_warps=8
    )
    return loss, grad


def losses(logits, target):
    return F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="none")


def reference(logits, target):
    return losses(logits, target), torch.logsumexp(logits, -1)


def gradient_reference(logits, target, upstream):
    logits = logits.detach().requires_grad_()
    loss = losses(logits, target)
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return loss.detach(), *torch.autograd.grad((loss * upstream).sum(), logits)


def inputs(make, p):
    target = make.integers((p.rows,), 0, p.vocab)
    target[2::7] = IGNORE
    return [make.normal((p.rows, p.vocab), p.dtype, std=3), target]


COMMON = {
    "axes": {"dtype": ["bf16", "fp32"]},
    "interpret": [
        {"rows": 1, "vocab": 1, "block": 128, "dtype": "fp32"},
        {"rows": 9, "vocab": 1009, "block": 512, "dtype": "fp32"},
        {"rows": 3, "vocab": 4097, "dtype": "bf16"},
    ],
    "correctness": [
        {"rows": rows, "vocab": vocab} for rows, vocab in [(1, 1), (9, 1009), (127, 4097), (1023, 50257), (4097, 4096)]
    ],
    "timing": [{"rows": 4096, "vocab": 32000, "dtype": "bf16"}],
    "tags": ["builtin", "memory-bound"],
}

forward = Case(
    name="cross_entropy",
    without={
        "special_values": "the logarithm of a sum with an infinity in it is left open",
        "strided": "takes contiguous inputs",
    },
    run=cross_entropy,
    reference=reference,
    inputs=inputs,
    bytes_moved=lambda p: p.rows * p.vocab * BYTES[p.dtype],
    competitor=losses,
    **COMMON,
)

gradient = Case(
    name="cross_entropy_gradient",
    without={
        "large_values": "beyond 2**24 an fp32 holds no logarithm beside a maximum: logits that tie share no gradient",
        "special_values": "the logarithm of a sum with an infinity in it is left open",
        "strided": "takes contiguous inputs",
    },
    run=cross_entropy_gradient,
    reference=gradient_reference,
    inputs=lambda make, p: [*inputs(make, p), make.uniform((p.rows,), "fp32", low=0.5)],
    bytes_moved=lambda p: 3 * p.rows * p.vocab * BYTES[p.dtype],  # the logits are read twice
    competitor=gradient_reference,
    **COMMON,
)
