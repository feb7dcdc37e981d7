"""Flash attention, forward: the output and each row's log-sum-exp, with and without a causal mask."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from matrix import Case

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, scale, seq,
    CAUSAL: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * seq
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lane = tl.arange(0, DIM)
    q = tl.load(q_ptr + (head + row[:, None]) * DIM + lane[None, :], mask=row[:, None] < seq, other=0.0)
    highest = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, DIM), tl.float32)
    end = seq
    if CAUSAL:
        end = min(seq, (tl.program_id(0) + 1) * BLOCK_M)
    for start in range(0, end, BLOCK_N):
        col = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + (head + col[None, :]) * DIM + lane[:, None], mask=col[None, :] < seq, other=0.0)
        score = tl.dot(q, k) * (scale * LOG2_E)
        seen = col[None, :] < seq
        if CAUSAL:
            seen = (col[None, :] < seq) & (col[None, :] <= row[:, None])
        score = tl.where(seen, score, float("-inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        keep = tl.exp2(highest - new)
        total = total * keep + tl.sum(weight, 1)
        v = tl.load(v_ptr + (head + col[:, None]) * DIM + lane[None, :], mask=col[:, None] < seq, other=0.0)
        out = tl.dot(weight.to(v.dtype), v, out * keep[:, None])
        highest = new
    offsets = (head + row[:, None]) * DIM + lane[None, :]
    tl.store(out_ptr + offsets, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=row[:, None] < seq)
    tl.store(lse_ptr + head + row, (highest + tl.log2(total)) / LOG2_E, mask=row < seq)


def attention(q, k, v, *, causal, block_m=128, block_n=64):
    batch, heads, seq, dim = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, seq), dtype=torch.float32, device=q.device)
    attention_kernel[(triton.cdiv(seq, block_m), batch * heads)](
        q, k, v, out, lse, dim**-0.5, seq,
        CAUSAL=causal, DIM=dim, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=8 if dim > 64 else 4, num_stages=2,
    )  # fmt: skip
    return out, lse


def reference(q, k, v, *, causal):
    """Head by head: all score matrices at once would not fit in memory."""
    heads = [one_head(*tensors, causal) for tensors in zip(*(t.flatten(0, 1) for t in (q, k, v)))]
    out, lse = (torch.stack(parts) for parts in zip(*heads))
    return out.view_as(q), lse.view(q.shape[:-1])


def one_head(q, k, v, causal):
    scores = q @ k.T * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def competitor(q, k, v, *, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def point(batch, heads, seq, dim):
    return {"batch": batch, "heads": heads, "seq": seq, "dim": dim}


case = Case(
    name="flash_attention",
    without={
        "special_values": "blocks above the diagonal are not read, and infinite scores are left open",
        "strided": "takes contiguous inputs",
    },
    run=attention,
    reference=reference,
    inputs=lambda make, p: [make.normal((p.batch, p.heads, p.seq, p.dim), p.dtype) for _ in range(3)],
    axes={"dtype": ["fp16", "bf16"], "causal": [False, True]},
    interpret=[
        {**point(1, 1, 1, 64), "dtype": "fp16", "causal": True},
        {**point(1, 2, 129, 64), "dtype": "fp16", "block_m": 64},
    ],
    correctness=[point(1, 1, 1, 64), point(1, 2, 129, 64), point(2, 3, 1021, 128), point(1, 4, 4097, 128)],
    timing=[
        {**point(4, 16, 4096, 64), "dtype": "fp16", "causal": False},
        {**point(4, 16, 4096, 128), "dtype": "bf16", "causal": True},
    ],
    compile=[{**point(4, 16, 4096, 128), "dtype": "bf16", "causal": True}],
    bytes_moved=lambda p: p.batch * p.heads * p.seq * (8 * p.dim + 4),
    flops=lambda p: 4 * p.batch * p.heads * p.seq**2 * p.dim / (2 if p.causal else 1),
    competitor=competitor,
    tags=["builtin", "compute-bound"],
)
