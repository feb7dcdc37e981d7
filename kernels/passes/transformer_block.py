"""A transformer block as one pass of several kernels, forward, and forward and backward as in training.

RMS norm, three projections, rotary embedding, causal attention, projection, RMS norm, SwiGLU feed-forward: the built-in
kernels as a model launches them, one after the other on one stream. A kernel may get faster and the pass not; the chain
of evidence sets the two beside each other. Attention's backward pass is here alone: the output's share of each row is
computed again in both of its kernels instead of being stored.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case, beside

attention = beside(__file__, "../flash_attention.py")
matmul = beside(__file__, "../matmul.py")
rms_norm = beside(__file__, "../rms_norm.py")
rope = beside(__file__, "../rope.py")
swiglu = beside(__file__, "../swiglu.py")
vector_add = beside(__file__, "../vector_add.py")

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attention_backward_kv_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, dout_ptr, lse_ptr, dk_ptr, dv_ptr, scale, seq,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of keys, against all queries that see it."""
    head = tl.program_id(1).to(tl.int64) * seq
    lane = tl.arange(0, DIM)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = (head + col[:, None]) * DIM + lane[None, :]
    k = tl.load(k_ptr + cols, mask=col[:, None] < seq, other=0.0)
    v = tl.load(v_ptr + cols, mask=col[:, None] < seq, other=0.0)
    dk = tl.zeros((BLOCK, DIM), tl.float32)
    dv = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, seq, BLOCK):
        row = start + tl.arange(0, BLOCK)
        rows = (head + row[:, None]) * DIM + lane[None, :]
        q = tl.load(q_ptr + rows, mask=row[:, None] < seq, other=0.0)
        out = tl.load(out_ptr + rows, mask=row[:, None] < seq, other=0.0).to(tl.float32)
        dout = tl.load(dout_ptr + rows, mask=row[:, None] < seq, other=0.0)
        lse = tl.load(lse_ptr + head + row, mask=row < seq, other=0.0)
        share = tl.sum(out * dout.to(tl.float32), 1)
        score = tl.dot(q, tl.trans(k)) * scale
        seen = (col[None, :] <= row[:, None]) & (row[:, None] < seq)
        weight = tl.where(seen, tl.exp2((score - lse[:, None]) * LOG2_E), 0.0)
        dv += tl.dot(tl.trans(weight.to(dout.dtype)), dout)
        dscore = weight * (tl.dot(dout, tl.trans(v)) - share[:, None]) * scale
        dk += tl.dot(tl.trans(dscore.to(q.dtype)), q)
    tl.store(dk_ptr + cols, dk.to(dk_ptr.dtype.element_ty), mask=col[:, None] < seq)
    tl.store(dv_ptr + cols, dv.to(dv_ptr.dtype.element_ty), mask=col[:, None] < seq)


@triton.jit
def attention_backward_q_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, dout_ptr, lse_ptr, dq_ptr, scale, seq, DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of queries, against all keys that it sees."""
    head = tl.program_id(1).to(tl.int64) * seq
    lane = tl.arange(0, DIM)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = (head + row[:, None]) * DIM + lane[None, :]
    q = tl.load(q_ptr + rows, mask=row[:, None] < seq, other=0.0)
    out = tl.load(out_ptr + rows, mask=row[:, None] < seq, other=0.0).to(tl.float32)
    dout = tl.load(dout_ptr + rows, mask=row[:, None] < seq, other=0.0)
    lse = tl.load(lse_ptr + head + row, mask=row < seq, other=0.0)
    share = tl.sum(out * dout.to(tl.float32), 1)
    dq = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(0, min(seq, (tl.program_id(0) + 1) * BLOCK), BLOCK):
        col = start + tl.arange(0, BLOCK)
        cols = (head + col[:, None]) * DIM + lane[None, :]
        k = tl.load(k_ptr + cols, mask=col[:, None] < seq, other=0.0)
        v = tl.load(v_ptr + cols, mask=col[:, None] < seq, other=0.0)
        score = tl.dot(q, tl.trans(k)) * scale
        seen = (col[None, :] <= row[:, None]) & (row[:, None] < seq)
        weight = tl.where(seen, tl.exp2((score - lse[:, None]) * LOG2_E), 0.0)
        dscore = weight * (tl.dot(dout, tl.trans(v)) - share[:, None]) * scale
        dq += tl.dot(dscore.to(k.dtype), k)
    tl.store(dq_ptr + rows, dq.to(dq_ptr.dtype.element_ty), mask=row[:, None] < seq)


def attention_backward(dout, q, k, v, out, lse, *, block=64):
    heads, seq, dim = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    grid, fixed = (triton.cdiv(seq, block), heads), {"DIM": dim, "BLOCK": block, "num_warps": 4, "num_stages": 1}
    attention_backward_kv_kernel[grid](q, k, v, out, dout, lse, dk, dv, dim**-0.5, seq, **fixed)
    attention_backward_q_kernel[grid](q, k, v, out, dout, lse, dq, dim**-0.5, seq, **fixed)
    return dq, dk, dv


def heads_first(x):
    """``(tokens, heads, dim)`` as attention wants it."""
    return x.transpose(0, 1).contiguous()[None]


def tokens_first(x):
    return x[0].transpose(0, 1).contiguous()


def block(x, cos, sin, norm_1, norm_2, w_qkv, w_out, w_gate, w_up, w_down, *, heads, tile=128):
    """The output, and what the backward pass needs again."""
    tiles = {"block_m": tile, "block_n": tile, "block_k": min(tile, 64)}
    tokens, width = x.shape
    normed, _ = rms_norm.rms_norm(x, norm_1)
    q, k, v = (matmul.matmul(normed, w, **tiles).view(tokens, heads, width // heads) for w in w_qkv.unbind(0))
    q, k = rope.rope(q, cos, sin), rope.rope(k, cos, sin)
    q, k, v = heads_first(q), heads_first(k), heads_first(v)
    mixed, lse = attention.attention(q, k, v, causal=True, block_m=min(tile, 128), block_n=min(tile, 64))
    flat = tokens_first(mixed).view(tokens, width)
    x_2 = vector_add.add(x, matmul.matmul(flat, w_out, **tiles))
    normed_2, _ = rms_norm.rms_norm(x_2, norm_2)
    gate, up = matmul.matmul(normed_2, w_gate, **tiles), matmul.matmul(normed_2, w_up, **tiles)
    hidden = swiglu.swiglu(gate, up)
    out = vector_add.add(x_2, matmul.matmul(hidden, w_down, **tiles))
    return out, (normed, q, k, v, mixed, lse, flat, x_2, normed_2, gate, up, hidden)


def forward(*inputs, heads, tile=128):
    return block(*inputs, heads=heads, tile=tile)[0]


def training(dy, x, cos, sin, norm_1, norm_2, w_qkv, w_out, w_gate, w_up, w_down, *, heads, tile=128):
    """Forward and backward: the output, and gradients of the input, both norms and all weights."""
    tiles = {"block_m": tile, "block_n": tile, "block_k": min(tile, 64)}
    weights = (norm_1, norm_2, w_qkv, w_out, w_gate, w_up, w_down)
    out, kept = block(x, cos, sin, *weights, heads=heads, tile=tile)
    normed, q, k, v, mixed, lse, flat, x_2, normed_2, gate, up, hidden = kept

    def product(a, b):
        return matmul.matmul(a, b, **tiles)

    d_down = product(hidden.T, dy)
    d_gate_out, d_up_out = swiglu.swiglu_backward(product(dy, w_down.T), gate, up)
    d_gate, d_up = product(normed_2.T, d_gate_out), product(normed_2.T, d_up_out)
    d_normed_2 = vector_add.add(product(d_gate_out, w_gate.T), product(d_up_out, w_up.T))
    through, d_norm_2 = rms_norm.rms_norm_backward(d_normed_2, x_2, norm_2)
    d_x_2 = vector_add.add(dy, through)
    d_out = product(flat.T, d_x_2)
    d_mixed = heads_first(product(d_x_2, w_out.T).view(x.shape[0], heads, -1))
    dq, dk, dv = attention_backward(d_mixed, q, k, v, mixed, lse, block=min(tile, 64))
    # The rotation's inverse is the rotation by the opposite angle.
    back = (rope.rope(tokens_first(dq), cos, -sin), rope.rope(tokens_first(dk), cos, -sin), tokens_first(dv))
    d_q, d_k, d_v = (each.reshape(x.shape) for each in back)
    d_qkv = torch.stack([product(normed.T, each) for each in (d_q, d_k, d_v)])
    towards = [product(each, w.T) for each, w in zip((d_q, d_k, d_v), w_qkv.unbind(0))]
    d_normed = vector_add.add(vector_add.add(towards[0], towards[1]), towards[2])
    through, d_norm_1 = rms_norm.rms_norm_backward(d_normed, x, norm_1)
    return out, vector_add.add(d_x_2, through), d_norm_1, d_norm_2, d_qkv, d_out, d_gate, d_up, d_down


def reference(x, cos, sin, norm_1, norm_2, w_qkv, w_out, w_gate, w_up, w_down, *, heads):
    tokens, width = x.shape
    normed = rms_norm.plain(x, norm_1)
    q, k, v = ((normed @ w).view(tokens, heads, -1) for w in w_qkv.unbind(0))
    q, k = (rope.reference(each, cos, sin).to(x.dtype) for each in (q, k))
    scores = torch.einsum("shd,thd->hst", q, k) * (width // heads) ** -0.5
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
    mixed = torch.einsum("hst,thd->shd", torch.softmax(scores.masked_fill(hidden, float("-inf")), -1), v)
    x_2 = x + mixed.reshape(tokens, width) @ w_out
    normed_2 = rms_norm.plain(x_2, norm_2)
    return x_2 + (F.silu(normed_2 @ w_gate) * (normed_2 @ w_up)) @ w_down


def training_reference(dy, x, cos, sin, *weights, heads):
    leaves = [t.detach().requires_grad_() for t in (x, *weights)]
    out = reference(leaves[0], cos, sin, *leaves[1:], heads=heads)
    # A scalar loss: for anything else autograd imports sympy first, which takes seconds.
    return (out.detach(), *torch.autograd.grad((out * dy).sum(), leaves))


def inputs(make, p):
    width, half = p.heads * p.dim, p.dim // 2
    angle = make.uniform((p.tokens, half), "fp32", low=-3.0, high=3.0)
    return [
        make.normal((p.tokens, width), p.dtype),
        torch.cos(angle),
        torch.sin(angle),
        make.uniform((width,), p.dtype, low=0.5, high=1.5),
        make.uniform((width,), p.dtype, low=0.5, high=1.5),
        make.normal((3, width, width), p.dtype, std=width**-0.5),
        make.normal((width, width), p.dtype, std=width**-0.5),
        make.normal((width, p.hidden), p.dtype, std=width**-0.5),
        make.normal((width, p.hidden), p.dtype, std=width**-0.5),
        make.normal((p.hidden, width), p.dtype, std=p.hidden**-0.5),
    ]


def flops(p):
    """Of the products alone, and half of the scores: the mask is causal."""
    width = p.heads * p.dim
    return 2 * p.tokens * width * (4 * width + 3 * p.hidden) + 2 * p.heads * p.tokens**2 * p.dim


LLAMA = {"tokens": 4096, "heads": 16, "dim": 128, "hidden": 5632}
COMMON = {
    "without": {
        "strided": "takes contiguous inputs",
        "special_values": "a value that is not finite spreads over its row and over every later token",
    },
    "interpret": [{"tokens": 33, "heads": 2, "dim": 16, "hidden": 80, "dtype": "fp16", "tile": 32}],
    "correctness": [
        {"tokens": 33, "heads": 2, "dim": 16, "hidden": 80, "dtype": "fp16", "tile": 32},
        {"tokens": 513, "heads": 4, "dim": 64, "hidden": 704, "dtype": "bf16"},
    ],
    "timing": [{**LLAMA, "dtype": "bf16"}],
    "tags": ["builtin", "pass"],
}

forward_case = Case(
    name="transformer_block", run=forward, reference=reference, inputs=inputs, flops=flops,
    competitor=reference, **COMMON,
)  # fmt: skip

training_case = Case(
    name="transformer_block_training",
    run=training,
    reference=training_reference,
    inputs=lambda make, p: [make.normal((p.tokens, p.heads * p.dim), p.dtype), *inputs(make, p)],
    # Twice as much again backward.
    flops=lambda p: 3 * flops(p),
    **COMMON,
)
